"""Raw values to values of a declared type: numbers, texts and times as files and generators spell them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from slicemill.esl.binder.scalar import parse_date, parse_timestamp
from slicemill.esl.types import Kind, Type

_INT_LIMITS = {Kind.INT: 2**31, Kind.BIGINT: 2**63}


class BadValueError(ValueError):
    """A raw value that is none of its column's type; the message says why."""


def converter(type_: Type) -> Callable[[object], object]:
    """A function from a raw value to one of `type_`; NULL stays NULL, anything unfit is a BadValueError."""
    convert = _CONVERTERS.get(type_.kind, _text)

    def checked(raw: object) -> object:
        if raw is None:
            return None
        try:
            return convert(raw, type_)
        except (ValueError, TypeError, OverflowError, InvalidOperation):
            raise BadValueError(f"{raw!r} is no {type_}") from None

    return checked


def _integer(raw: object, type_: Type) -> object:
    if isinstance(raw, bool) or (isinstance(raw, float) and not raw.is_integer()):
        raise ValueError
    number = int(raw)  # type: ignore[call-overload]  # what int() refuses is the user's bad value
    if not -_INT_LIMITS[type_.kind] <= number < _INT_LIMITS[type_.kind]:
        raise ValueError
    return number


def _double(raw: object, type_: Type) -> object:
    del type_
    if isinstance(raw, bool):
        raise ValueError
    return float(raw)  # type: ignore[arg-type]  # as above


def _decimal(raw: object, type_: Type) -> object:
    assert type_.precision is not None and type_.scale is not None
    exact = Decimal(str(raw)).quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
    if len(exact.as_tuple().digits) > type_.precision:
        raise ValueError
    return exact


def _boolean(raw: object, type_: Type) -> object:
    del type_
    words: dict[object, bool] = {
        True: True,
        False: False,
        "true": True,
        "false": False,
        "t": True,
        "f": False,
    }
    key = raw.lower() if isinstance(raw, str) else raw
    if key not in words:
        raise ValueError
    return words[key]


def _text(raw: object, type_: Type) -> object:
    text = str(raw)
    if type_.length is not None and len(text) > type_.length:
        raise ValueError
    return text


def _timestamp(raw: object, type_: Type) -> object:
    """Texts as in ISO 8601; numbers are microseconds, as everywhere inside."""
    del type_
    if isinstance(raw, bool):
        raise ValueError
    if isinstance(raw, int):
        return raw
    if isinstance(raw, float) and math.isfinite(raw) and raw.is_integer():
        return int(raw)
    if isinstance(raw, datetime):
        moment = raw if raw.tzinfo is not None else raw.replace(tzinfo=UTC)
        delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    text = str(raw)
    value = int(text) if text.lstrip("-").isdigit() else parse_timestamp(text)
    if value is None:
        raise ValueError
    return value


def _date(raw: object, type_: Type) -> object:
    del type_
    if isinstance(raw, date) and not isinstance(raw, datetime):
        return (raw - date(1970, 1, 1)).days
    value = parse_date(str(raw))
    if value is None:
        raise ValueError
    return value


def _binary(raw: object, type_: Type) -> object:
    del type_
    return raw if isinstance(raw, bytes) else str(raw).encode()


_CONVERTERS: dict[Kind, Callable[[object, Type], object]] = {
    Kind.INT: _integer,
    Kind.BIGINT: _integer,
    Kind.INTERVAL: lambda raw, _: _integer(raw, Type(Kind.BIGINT)),
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.BOOLEAN: _boolean,
    Kind.VARCHAR: _text,
    Kind.TIMESTAMP: _timestamp,
    Kind.DATE: _date,
    Kind.BINARY: _binary,
}
