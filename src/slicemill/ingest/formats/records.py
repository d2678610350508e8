"""Records (untyped values by field name), and conversion of values to declared types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TypeAlias

from slicemill.binder.expressions import parse_date, parse_timestamp
from slicemill.functions.calendar import BLANKS
from slicemill.functions.values import double_text
from slicemill.types import TIMESTAMP, Kind, TimestampUnit, Type

Record = Mapping[str, object]

NO_TEXT = "this is no UTF-8 text"
NO_JSON = "this is no JSON object"


@dataclass(frozen=True, slots=True)
class BadRow:
    """Row that could not be read, with the reason as an error message."""

    raw: str
    reason: str


# Result of parsing a line: its text (None for formats without lines) and its record, or a bad row.
Entry: TypeAlias = tuple[str | None, Record] | BadRow


def value_of(record: Record, name: str) -> object:
    """Return a column's value in a record.

    A field with the exact name has precedence over a field whose name differs in case.
    """
    value = record.get(name)
    if value is None:
        lowered = name.lower()
        for key, other in record.items():
            if key.lower() == lowered:
                value = other
    return value


def json_record(line: str) -> Entry:
    """Parse one JSON object on one line."""
    try:
        record = json.loads(line, parse_float=JsonNumber, parse_constant=no_constant)
    except (ValueError, RecursionError):
        record = None
    return (line, record) if isinstance(record, dict) else BadRow(line, NO_JSON)


# Conversion of single raw values to a declared type
#
# The regular expressions define the accepted spellings. `connectors.spark.checks` uses the same expressions,
# so Spark and the native readers reject the same values with the same error messages.


WHOLE = r"[+-]?[0-9]+"
# Spelling of a number.
# Three digits of the exponent suffice for any DOUBLE, and longer exponents make DECIMAL slow.
NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
SPECIAL_NUMBER = r"(?i:[+-]?(?:inf|infinity)|nan)"
DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
# Spelling of a timestamp in ISO 8601: a date, then optionally hours and minutes, seconds, a fraction, and an
# offset from UTC. Without an offset, the timestamp is in UTC.
INSTANT = (
    rf"({DAY})(?:[ T]([0-9]{{2}}:[0-9]{{2}})(?:(:[0-9]{{2}})(\.[0-9]+)?)?"
    r"(Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?)?)?"
)
TRUE_WORDS = ("t", "true", "y", "yes", "1")
FALSE_WORDS = ("f", "false", "n", "no", "0")
# Largest integer that may be spelled as a DOUBLE (3.0, 1e6). Doubles do not represent all larger integers.
MAX_WHOLE_DOUBLE = 2**53
# Maximum length of a bad value in an error message.
MAX_SHOWN = 100
# Hint for a number in a TIMESTAMP column whose declaration has no unit.
NO_UNIT = "; a number needs its unit: declare the column as TIMESTAMP SECONDS, MILLIS, MICROS or NANOS"
# Microseconds of each unit of TIMESTAMP. Nanoseconds are divided by 1000 and rounded down.
UNIT_US = {TimestampUnit.SECONDS: 1_000_000, TimestampUnit.MILLIS: 1_000, TimestampUnit.MICROS: 1}
# Range of timestamps: the years 1 to 9999. A number in a unit other than declared is usually out of range.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999

_WHOLE = re.compile(WHOLE)
_NUMBER = re.compile(NUMBER)
_SPECIAL = re.compile(SPECIAL_NUMBER)
_DAY = re.compile(DAY)
_INSTANT = re.compile(INSTANT)
_INT_LIMITS = {Kind.INT: 2**31, Kind.BIGINT: 2**63}
_DECIMAL_CONTEXT = Context(prec=1100, Emax=2000, Emin=-2000)


class BadValueError(ValueError):
    """Error: a raw value does not fit the type of its column."""


class JsonNumber(float):
    """JSON number with a fraction or exponent, and its text.

    The conversion to DECIMAL uses the text, which is exact.
    """

    def __init__(self, spelling: str) -> None:
        self.spelling = spelling


def converter(type_: Type) -> Callable[[object], object]:
    """Return a function that converts raw values to `type_`.

    NULL stays NULL. The function raises BadValueError for a value that does not fit.

    >>> from slicemill.types import INT
    >>> converter(INT)(" 3.0 ")
    3
    """
    convert = _CONVERTERS.get(type_.kind, _text)

    def checked(raw: object) -> object:
        if raw is None:
            return None
        try:
            return convert(raw, type_)
        except (ValueError, TypeError, OverflowError, InvalidOperation):
            hint = NO_UNIT if type_ == TIMESTAMP and _NUMBER.fullmatch(_strip_blanks(raw)) else ""
            raise BadValueError(f"'{_shorten(value_text(raw))}' is no {type_}{hint}") from None

    return checked


def value_text(raw: object) -> str:
    """Return a raw value as text, for VARCHAR columns and for error messages."""
    if isinstance(raw, str):
        # JSON may contain an escaped half of a surrogate pair, which UTF-8 cannot encode.
        return raw if raw.isascii() else raw.encode(errors="replace").decode()
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, float):
        return double_text(raw)
    if isinstance(raw, Decimal):
        return f"{raw:f}"
    if isinstance(raw, bytes):
        return raw.decode(errors="replace")
    if isinstance(raw, datetime):
        text = raw.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if raw.microsecond else text
    if isinstance(raw, dict | list):
        return json.dumps(raw, default=str, ensure_ascii=False, separators=(",", ":"))
    return str(raw)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _strip_blanks(raw: object) -> str:
    return value_text(raw).strip(BLANKS)


def _integer(raw: object, type_: Type) -> object:
    number = _whole(raw)
    limit = _INT_LIMITS[type_.kind]
    if not -limit <= number < limit:
        raise ValueError
    return number


def _whole(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, Decimal):
        if raw != raw.to_integral_value():
            raise ValueError
        return int(raw)
    if not isinstance(raw, float):
        text = _strip_blanks(raw)
        if _WHOLE.fullmatch(text):
            return int(text)
        raw = _number(text)
    if not raw.is_integer() or abs(raw) > MAX_WHOLE_DOUBLE:
        raise ValueError
    return int(raw)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return float(text)


def _double(raw: object, type_: Type) -> object:
    del type_
    if isinstance(raw, float):
        # A JSON number beyond the range of DOUBLE is an error. Only the word Infinity is infinite.
        if isinstance(raw, JsonNumber) and math.isinf(raw):
            raise ValueError
        return float(raw)
    if isinstance(raw, int | Decimal) and not isinstance(raw, bool):
        return float(raw)
    text = _strip_blanks(raw)
    return float(text) if _SPECIAL.fullmatch(text) else _number(text)


def _decimal(raw: object, type_: Type) -> object:
    assert type_.precision is not None and type_.scale is not None
    text = raw.spelling if isinstance(raw, JsonNumber) else _strip_blanks(raw)
    if not _NUMBER.fullmatch(text):
        raise ValueError
    unit = Decimal(1).scaleb(-type_.scale)
    exact = Decimal(text).quantize(unit, ROUND_HALF_UP, _DECIMAL_CONTEXT)
    if len(exact.as_tuple().digits) > type_.precision:
        raise ValueError
    return exact


def _boolean(raw: object, type_: Type) -> object:
    del type_
    word = _strip_blanks(raw).lower()
    if word not in TRUE_WORDS and word not in FALSE_WORDS:
        raise ValueError
    return word in TRUE_WORDS


def _text(raw: object, type_: Type) -> object:
    text = value_text(raw)
    if type_.length is not None and len(text) > type_.length:
        raise ValueError
    return text


def _timestamp(raw: object, type_: Type) -> object:
    """Convert an ISO 8601 text, or a number in the declared unit."""
    if isinstance(raw, datetime):
        moment = raw if raw.tzinfo is not None else raw.replace(tzinfo=UTC)
        delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if not isinstance(raw, float | int | Decimal):
        text = _strip_blanks(raw)
        if _INSTANT.fullmatch(text):
            value = parse_timestamp(text)
            if value is None:
                raise ValueError
            return value
    if type_.unit is None:
        raise ValueError
    number = _whole(raw)
    us = number // 1_000 if type_.unit is TimestampUnit.NANOS else number * UNIT_US[type_.unit]
    if not (-(2**63) <= number < 2**63 and FIRST_US <= us <= LAST_US):
        raise ValueError
    return us


def _date(raw: object, type_: Type) -> object:
    del type_
    if isinstance(raw, date) and not isinstance(raw, datetime):
        return (raw - date(1970, 1, 1)).days
    text = _strip_blanks(raw)
    value = parse_date(text) if _DAY.fullmatch(text) else None
    if value is None:
        raise ValueError
    return value


def _binary(raw: object, type_: Type) -> object:
    del type_
    return raw if isinstance(raw, bytes) else value_text(raw).encode()


def no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _list(raw: object, type_: Type) -> object:
    """Convert a list, or the text of a JSON list."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw, parse_float=JsonNumber, parse_constant=no_constant)
        except RecursionError:
            raise ValueError from None
    if not isinstance(raw, list | tuple) or type_.element is None:
        raise ValueError
    return tuple(map(converter(type_.element), raw))


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
    Kind.LIST: _list,
}


# Text of bad rows of typed sources: JSON in the format that Spark writes


def record_text(record: Mapping[str, object]) -> str:
    """Return a record as the text of one JSON object, including NULLs."""
    return json.dumps(record, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    convert: Callable[[object], object] = next(
        (function for kind, function in _PLAIN if isinstance(value, kind)), str
    )
    return convert(value)


def _instant(value: object) -> object:
    assert isinstance(value, datetime)
    text = value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")
    return text.replace("+00:00", "Z")


_PLAIN: tuple[tuple[type, Callable[[object], object]], ...] = (
    (datetime, _instant),
    (date, str),
    (Decimal, lambda value: f"{value:f}"),
    (bytes, lambda value: value.decode(errors="replace") if isinstance(value, bytes) else value),
)
