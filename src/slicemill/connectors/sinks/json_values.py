"""Conversion of values to JSON types, for example timestamps to texts."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

from slicemill.types import TIMESTAMP, Kind, Type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain(value: object, type_: Type) -> object:
    """Convert a value to JSON types.

    Timestamps are ISO 8601 texts in UTC, intervals are microseconds, decimals are exact texts, bytes are
    base64.

    >>> plain(1_500_000, TIMESTAMP), plain(float("nan"), Type(Kind.DOUBLE)), plain(None, Type(Kind.DATE))
    ('1970-01-01T00:00:01.500000Z', 'NaN', None)
    """
    if type_.element is not None and value is not None:
        return [plain(element, type_.element) for element in cast(tuple[object, ...], value)]
    convert = _PLAIN.get(type_.kind)
    return value if value is None or convert is None else convert(value)


def _instant(value: object) -> object:
    try:
        return (_EPOCH + timedelta(microseconds=cast(int, value))).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return value  # the year is outside Python's calendar, so the number is returned


def _date(value: object) -> object:
    try:
        return (_EPOCH + timedelta(days=cast(int, value))).date().isoformat()
    except OverflowError:
        return value


def _double(value: object) -> object:
    number = cast(float, value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _decimal(value: object) -> object:
    return f"{cast(Decimal, value):f}"


def _bytes(value: object) -> object:
    return base64.b64encode(cast(bytes, value)).decode()


def _period(value: object) -> object:
    begin, end = cast(tuple[int, int], value)
    return {"begin": plain(begin, TIMESTAMP), "end": plain(end, TIMESTAMP)}


_PLAIN: dict[Kind, Callable[[object], object]] = {
    Kind.TIMESTAMP: _instant,
    Kind.DATE: _date,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.BINARY: _bytes,
    Kind.PERIOD: _period,
}
