"""Decoding of PostgreSQL client parameters, from text and binary format."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation, localcontext

from slicemill.errors import SlicemillError
from slicemill.server.encoding import interval_text
from slicemill.server.postgres.values import (
    ARRAYS,
    BOOL,
    BYTEA,
    DATE,
    DIGITS,
    FLOAT4,
    FLOAT8,
    INFINITE,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    NEGATIVE,
    NOT_A_NUMBER,
    NUMERIC,
    OID,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    VARCHAR,
)
from slicemill.server.user_session import UntypedText

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MOST_DECIMALS = 1000
_ELEMENTS = {array: element for element, array in ARRAYS.items()} | {
    1015: VARCHAR,
    1021: FLOAT4,
    1115: TIMESTAMP,
    199: JSON,
}


LIST = -1  # type code of a list with elements of unknown type


def list_parameters(text: str) -> dict[int, int]:
    """Return the list types of parameters that a statement's text implies, by parameter number.

    >>> list_parameters("SELECT $1::int[], CAST($2 AS varchar[]), k = ANY($3), $4 FROM t")
    {1: 1007, 2: 1009, 3: -1}
    """
    found: dict[int, int] = {}
    for match in _LIST_PARAMETER.finditer(text):
        number, word = next((n, w) for n, w in (match.group(1, 2), match.group(3, 4)) if n)
        element = TYPE_WORDS.get(" ".join(word.lower().split()))
        if element in ARRAYS:
            found[int(number)] = ARRAYS[element]
    for match in _ANY_PARAMETER.finditer(text):
        found.setdefault(int(match[1]), LIST)
    return found


_TYPE = r"(?:pg_catalog\s*\.\s*)?([A-Za-z]\w*(?:\s+precision)?)\s*\[\s*\]"
_LIST_PARAMETER = re.compile(rf"\$(\d+)\s*::\s*{_TYPE}|\bCAST\s*\(\s*\$(\d+)\s+AS\s+{_TYPE}", re.IGNORECASE)
_ANY_PARAMETER = re.compile(r"\b(?:ANY|ALL|SOME)\s*\(\s*\$(\d+)\s*\)", re.IGNORECASE)
TYPE_WORDS = {
    **dict.fromkeys(("bool", "boolean"), BOOL),
    **dict.fromkeys(("int", "integer", "int4"), INT4),
    **dict.fromkeys(("bigint", "int8"), INT8),
    **dict.fromkeys(("smallint", "int2"), INT2),
    **dict.fromkeys(("double", "double precision", "float", "float8"), FLOAT8),
    **dict.fromkeys(("decimal", "numeric"), NUMERIC),
    **dict.fromkeys(("text", "string", "varchar", "name"), TEXT),
    **dict.fromkeys(("binary", "bytea", "blob"), BYTEA),
    **dict.fromkeys(("timestamp", "timestamptz"), TIMESTAMPTZ),
    "date": DATE,
    "interval": INTERVAL,
    "oid": OID,
}


def parameter_value(content: bytes | None, oid: int, binary: bool) -> object:
    """Decode the value of a parameter. A parameter of unknown type becomes UntypedText."""
    if content is None:
        return None
    if binary and oid == LIST:
        oid = 0  # the server has described this type to the client as text
    element = _ELEMENTS.get(oid)
    if binary and oid not in _FROM_BINARY and element not in _FROM_BINARY:
        raise SlicemillError(f"binary parameters of type {oid} are not supported; send the parameter as text")
    try:
        if binary:
            return _FROM_BINARY[oid](content) if element is None else _array_of_bytes(content, element)
        text = content.decode()
        # Other text is passed to the query unchanged, for example in `'[1, 2]'::int[]`.
        is_list = (element is not None or oid == LIST) and text.lstrip().startswith("{")
        if is_list:
            return _array_values(text, UntypedText if element is None else _FROM_TEXT.get(element, str))
        return _FROM_TEXT.get(oid, UntypedText)(text)
    except (ValueError, struct.error, InvalidOperation) as problem:
        raise SlicemillError(f"a parameter value is invalid: {problem}") from None
    except OverflowError:
        raise SlicemillError(
            "a parameter value is out of range: use years from 1 to 9999, or infinity"
        ) from None


_ZONED_DATE = re.compile(r"(\d{4}-\d\d-\d\d) [+-]\d\d(?::\d\d)?")
_INFINITIES = ("infinity", "-infinity")


def _without_zone(text: str) -> str:
    """Remove the time zone that pgJDBC appends to a date.

    >>> _without_zone("2026-01-31 +00")
    '2026-01-31'
    """
    found = _ZONED_DATE.fullmatch(text)
    return text if found is None else found[1]


def _infinite_or(read: Callable[[str], object]) -> Callable[[str], object]:
    """Return a decoder of dates or timestamps that leaves infinity as text.

    Python has no infinite date, so DuckDB decodes the text.
    """
    return lambda text: UntypedText(text.lower()) if text.lower() in _INFINITIES else read(text)


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word in ("t", "true", "yes", "y", "on", "1"):
        return True
    if word in ("f", "false", "no", "n", "off", "0"):
        return False
    raise ValueError(f"{text!r} is not a boolean")


_INTERVAL = re.compile(r"(?:(-?\d+) days?)?,? ?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?))?")


def _interval_of_text(text: str) -> object:
    """Decode an interval of days and a time.

    Other intervals, for instance months, stay text, which DuckDB decodes.

    >>> _interval_of_text("-1 day, 23:59:56.5"), _interval_of_text("1 mon")
    (datetime.timedelta(days=-1, seconds=86396, microseconds=500000), '1 mon')
    """
    found = _INTERVAL.fullmatch(text)
    if found is None or not text.strip():
        return text
    days, sign, hours, minutes, seconds = found.groups(default="0")
    time = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
    return timedelta(days=int(days)) + (-time if sign == "-" else time)


_FROM_TEXT: dict[int, Callable[[str], object]] = {
    BOOL: _bool,
    INT2: int,
    INT4: int,
    INT8: int,
    OID: int,
    FLOAT4: float,
    FLOAT8: float,
    NUMERIC: lambda text: _finite(Decimal(text)),
    TEXT: str,
    VARCHAR: str,
    JSON: str,
    INTERVAL: _interval_of_text,
    0: lambda text: UntypedText(_without_zone(text)),
    DATE: _infinite_or(lambda text: date.fromisoformat(_without_zone(text))),
    TIMESTAMP: _infinite_or(datetime.fromisoformat),
    TIMESTAMPTZ: _infinite_or(datetime.fromisoformat),
    BYTEA: lambda text: bytes.fromhex(text.removeprefix("\\x")),
}
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|((?:[^,{}"\\]|\\.)+)', re.DOTALL)
_ONE_DIMENSION = re.compile(r'\{((?:[^{}"\\]|\\.|"(?:[^"\\]|\\.)*")*)\}', re.DOTALL)


def _finite(number: Decimal) -> Decimal:
    if not number.is_finite():
        raise ValueError("a decimal number must be finite")
    return number


def _array_values(text: str, value_of: Callable[[str], object]) -> list[object]:
    """Decode a one-dimensional array in PostgreSQL's text format: `{1,"a, b",NULL}`.

    >>> _array_values('{1,NULL,"3"}', int)
    [1, None, 3]
    """
    inner = _ONE_DIMENSION.fullmatch(text.strip())
    if inner is None:
        raise ValueError(f"{text[:50]!r} is not a one-dimensional array")
    found: list[object] = []
    for element in _ELEMENT.finditer(inner[1]):
        if element[1] is not None:
            found.append(value_of(re.sub(r"\\(.)", r"\1", element[1], flags=re.DOTALL)))
        else:
            plain = element[2].strip()
            found.append(None if plain.upper() == "NULL" else value_of(re.sub(r"\\(.)", r"\1", plain)))
    return found


def _array_of_bytes(content: bytes, element: int) -> list[object]:
    """Decode a one-dimensional binary array: dimensions, flags, type, length, lower bound, values."""
    dimensions, _, oid = struct.unpack("!iiI", content[:12])
    if dimensions == 0:
        return []
    if dimensions != 1 or oid != element:
        raise ValueError("an array must have one dimension, and elements of the declared type")
    length, _ = struct.unpack("!ii", content[12:20])
    found: list[object] = []
    index = 20
    for _ in range(length):
        (size,) = struct.unpack("!i", content[index : index + 4])
        index += 4
        if size < 0:
            found.append(None)
            continue
        if index + size > len(content):
            raise ValueError("an array is shorter than its declared length")
        found.append(_FROM_BINARY[element](content[index : index + size]))
        index += size
    return found


def _numeric_value(content: bytes) -> Decimal:
    """Decode a binary NUMERIC from its base-10,000 digits (see `values.numeric_bytes`).

    >>> from slicemill.server.postgres.values import numeric_bytes
    >>> _numeric_value(numeric_bytes(Decimal("1200000.05")))
    Decimal('1200000.05')
    """
    count, weight, sign, scale = struct.unpack("!hhHH", content[:8])
    if sign == NOT_A_NUMBER or sign in INFINITE:
        raise ValueError("a decimal number must be finite")
    if (
        sign not in (0, NEGATIVE)
        or not 0 <= count <= 2 * _MOST_DECIMALS
        or scale > _MOST_DECIMALS
        or abs(weight) > _MOST_DECIMALS
    ):
        raise ValueError("these bytes are not a valid NUMERIC")
    number = 0
    for digit in struct.unpack(f"!{count}H", content[8:]):
        number = number * 10**DIGITS + int(digit)
    written = Decimal(-number if sign else number)
    with localcontext(Context(prec=_MOST_DECIMALS + 5 * DIGITS * _MOST_DECIMALS)):
        return written.scaleb(DIGITS * (weight + 1 - count)).quantize(Decimal(1).scaleb(-scale))


def _day(content: bytes) -> object:
    (days,) = struct.unpack("!i", content)
    if days in ((1 << 31) - 1, -(1 << 31)):
        return UntypedText(_INFINITIES[days < 0])
    return _EPOCH.date() + timedelta(days=days)


def _moment(content: bytes) -> object:
    (us,) = struct.unpack("!q", content)
    if us in ((1 << 63) - 1, -(1 << 63)):
        return UntypedText(_INFINITIES[us < 0])
    return _EPOCH + timedelta(microseconds=us)


def _interval(content: bytes) -> object:
    us, days, months = struct.unpack("!qii", content)
    if months:
        return interval_text((months, days, us * 1_000))
    return timedelta(days=days, microseconds=us)


_FROM_BINARY: dict[int, Callable[[bytes], object]] = {
    BOOL: lambda content: content != b"\0",
    INT2: lambda content: struct.unpack("!h", content)[0],
    INT4: lambda content: struct.unpack("!i", content)[0],
    INT8: lambda content: struct.unpack("!q", content)[0],
    OID: lambda content: struct.unpack("!I", content)[0],
    FLOAT4: lambda content: struct.unpack("!f", content)[0],
    FLOAT8: lambda content: struct.unpack("!d", content)[0],
    TEXT: lambda content: content.decode(),
    VARCHAR: lambda content: content.decode(),
    JSON: lambda content: content.decode(),
    UNKNOWN: lambda content: content.decode(),
    0: lambda content: UntypedText(content.decode()),  # the server has described the type as text
    BYTEA: lambda content: content,
    DATE: _day,
    TIMESTAMP: _moment,
    TIMESTAMPTZ: _moment,
    NUMERIC: _numeric_value,
    INTERVAL: _interval,
}
