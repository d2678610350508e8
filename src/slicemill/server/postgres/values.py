"""Encoding of result values in PostgreSQL's text and binary formats."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import cast

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.server.encoding import interval_text, is_interval, is_list, json_values, lists_of, raw_values
from slicemill.server.postgres.wire import ColumnDescription
from slicemill.types import Kind

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID, JSON = 16, 17, 20, 21, 23, 25, 26, 114
FLOAT4, FLOAT8, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC = (
    *(700, 701, 1043, 1082, 1114, 1184),
    *(1186, 1700),
)
UNKNOWN = 705
# Oids of array types, by oid of the element type
ARRAYS = {
    BOOL: 1000,
    BYTEA: 1001,
    INT8: 1016,
    INT2: 1005,
    INT4: 1007,
    TEXT: 1009,
    OID: 1028,
    FLOAT8: 1022,
    DATE: 1182,
    TIMESTAMPTZ: 1185,
    INTERVAL: 1187,
    NUMERIC: 1231,
}

_PG_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_SIZES = {
    BOOL: 1,
    INT2: 2,
    INT4: 4,
    OID: 4,
    FLOAT4: 4,
    DATE: 4,
    INT8: 8,
    FLOAT8: 8,
    TIMESTAMP: 8,
    TIMESTAMPTZ: 8,
}
Encode = Callable[[object], bytes]


def describe_columns(schema: pa.Schema) -> list[ColumnDescription]:
    """Return the columns of a table with the oids and sizes of their PostgreSQL types."""
    return [ColumnDescription(field.name, oid := _oid(field.type), type_size(oid)) for field in schema]


def type_size(oid: int) -> int:
    """Return the size of a type in bytes, or -1 for types of variable length."""
    return _SIZES.get(oid, -1)


def _oid(kind: pa.DataType) -> int:
    tests: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
        (pa.types.is_boolean, BOOL),
        (pa.types.is_decimal, NUMERIC),
        (pa.types.is_floating, FLOAT8),
        (pa.types.is_date, DATE),
        (pa.types.is_timestamp, TIMESTAMPTZ),
        (pa.types.is_duration, INTERVAL),
        (pa.types.is_binary, BYTEA),
        (pa.types.is_large_binary, BYTEA),
        (is_interval, INTERVAL),
        (lambda one: is_list(one) and _oid(one.value_type) in ARRAYS, 0),
        (pa.types.is_nested, JSON),
        (pa.types.is_uint64, NUMERIC),
        (pa.types.is_uint32, OID),  # PostgreSQL's only unsigned integer type
        (pa.types.is_dictionary, TEXT),
    )
    for matches, oid in tests:
        if matches(kind):
            return oid or ARRAYS[_oid(kind.value_type)]
    if pa.types.is_integer(kind):
        return INT2 if kind.bit_width < 16 else INT4 if kind.bit_width < 32 or kind == pa.int32() else INT8
    return TEXT


def encode_columns(table: pa.Table, formats: Sequence[int] = ()) -> list[list[bytes | None]]:
    """Encode the values of each column. `formats` has 1 for binary columns."""
    found: list[list[bytes | None]] = []
    for index, column in enumerate(table.columns):
        binary = index < len(formats) and formats[index] == 1
        found.append([value for chunk in column.chunks for value in _encode_array(chunk, binary)])
    return found


def _encode_array(array: pa.Array, binary: bool) -> list[bytes | None]:
    oid = _oid(array.type)
    if oid == JSON:
        return [None if value is None else _json(value) for value in json_values(array)]
    if is_list(array.type):
        element = _oid(array.type.value_type)
        lists = lists_of(array, lambda elements: _encode_array(elements, binary))
        if binary:
            return [None if one is None else _array_bytes(one, element) for one in lists]
        return [None if one is None else _array_text(one) for one in lists]
    encode = _encoder(oid, binary)
    return [None if value is None else encode(value) for value in raw_values(array)]


def encode_values(columns: Sequence[Sequence[object]], kinds: Sequence[Kind]) -> list[list[bytes | None]]:
    """Encode engine values in text format. Timestamps and intervals are microseconds."""
    found: list[list[bytes | None]] = []
    for values, kind in zip(columns, kinds, strict=True):
        encode = _OF_KINDS[kind]
        found.append([None if value is None else encode(value) for value in values])
    return found


def _array_text(elements: Sequence[bytes | None]) -> bytes:
    """Encode an array in text format, with quotes around values: `{"1",NULL}`."""
    written = (b"NULL" if one is None else b'"' + _escape_quotes(one) + b'"' for one in elements)
    return b"{" + b",".join(written) + b"}"


def _escape_quotes(element: bytes) -> bytes:
    return element.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _array_bytes(elements: Sequence[bytes | None], oid: int) -> bytes:
    has_null = any(one is None for one in elements)
    if not elements:
        return struct.pack("!iiI", 0, 0, oid)
    parts = [struct.pack("!iiIii", 1, has_null, oid, len(elements), 1)]
    parts += [_NULL if one is None else struct.pack("!i", len(one)) + one for one in elements]
    return b"".join(parts)


_NULL = struct.pack("!i", -1)


def _encoder(oid: int, binary: bool) -> Encode:
    if not binary:
        return _TEXTS.get(oid, _text)
    encode = _BINARIES.get(oid)
    if encode is None:
        raise SlicemillError("a column of this type has no binary format; request text results")
    return encode


_DAY_US = 86_400_000_000
_INFINITE_US, _INFINITE_DAY = (1 << 63) - 1, (1 << 31) - 1


def _instant(value: object) -> bytes:
    """Encode a timestamp given in microseconds: `2026-01-31 10:00:00.000000+00`."""
    us = cast(int, value)
    if abs(us) == _INFINITE_US:
        return b"infinity" if us > 0 else b"-infinity"
    days, rest = divmod(us, _DAY_US)
    day, era = _calendar_day(days)
    seconds, micros = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}+00"
    return f"{day} {clock}{era}".encode()


def _date(value: object) -> bytes:
    """Encode a date given in days since 1970."""
    days = cast(int, value)
    if abs(days) == _INFINITE_DAY:
        return b"infinity" if days > 0 else b"-infinity"
    return "".join(_calendar_day(days)).encode()


def _calendar_day(days: int) -> tuple[str, str]:
    """Return a day since 1970 as a Gregorian date, with ` BC` for years before 1.

    >>> _calendar_day(0), _calendar_day(-735_160), _calendar_day(20_000_000)
    (('1970-01-01', ''), ('0044-03-15', ' BC'), ('56728-02-22', ''))
    """
    # The calendar repeats every 400 years, which have 146,097 days.
    rounds, day = divmod(days + 719_162, 146_097)
    found = date.fromordinal(day + 1)
    year = found.year + 400 * rounds
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04d}-{found.month:02d}-{found.day:02d}", era


def _interval(value: object) -> bytes:
    """Encode an interval: microseconds of the engine, or months, days and nanoseconds of DuckDB."""
    if isinstance(value, tuple):
        return interval_text(value).encode()
    seconds, micros = divmod(abs(cast(int, value)), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if cast(int, value) < 0 else ""
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}.{micros:06d}".encode()


def _interval_bytes(value: object) -> bytes:
    if isinstance(value, tuple):
        months, days, nanoseconds = value
        return struct.pack("!qii", nanoseconds // 1_000, days, months)
    return struct.pack("!qii", value, 0, 0)


def _instant_bytes(value: object) -> bytes:
    """Encode a timestamp as microseconds since 2000.

    Infinities are the largest and smallest integers.
    """
    us = cast(int, value)
    if abs(us) == _INFINITE_US:
        return struct.pack("!q", us if us > 0 else us - 1)
    if us - _PG_EPOCH_US < -_INFINITE_US:
        raise SlicemillError("a timestamp before 290 000 BC has no binary format; request text results")
    return struct.pack("!q", us - _PG_EPOCH_US)


def _date_bytes(value: object) -> bytes:
    days = cast(int, value)
    if abs(days) == _INFINITE_DAY:
        return struct.pack("!i", days if days > 0 else days - 1)
    if days - _PG_EPOCH_DAY < -_INFINITE_DAY:
        raise SlicemillError("a date so long ago has no binary format; request text results")
    return struct.pack("!i", days - _PG_EPOCH_DAY)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _text(value: object) -> bytes:
    """Encode a value as text, also for types without a PostgreSQL counterpart."""
    return (value if isinstance(value, str) else str(value)).encode()


def _float(value: object) -> bytes:
    number = cast(float, value)
    if math.isfinite(number):
        return repr(number).encode()
    return b"NaN" if math.isnan(number) else b"Infinity" if number > 0 else b"-Infinity"


_TEXTS: dict[int, Encode] = {
    BOOL: lambda value: b"t" if value else b"f",
    BYTEA: lambda value: b"\\x" + cast(bytes, value).hex().encode(),
    FLOAT8: _float,
    TIMESTAMPTZ: _instant,
    INTERVAL: _interval,
    DATE: _date,
    NUMERIC: lambda value: f"{Decimal(cast(Decimal, value)):f}".encode(),
}
_OF_KINDS: dict[Kind, Encode] = {
    Kind.BOOLEAN: _TEXTS[BOOL],
    Kind.BINARY: _TEXTS[BYTEA],
    Kind.DOUBLE: _TEXTS[FLOAT8],
    Kind.TIMESTAMP: _TEXTS[TIMESTAMPTZ],
    Kind.INTERVAL: _TEXTS[INTERVAL],
    Kind.DECIMAL: _TEXTS[NUMERIC],
    **{
        kind: (lambda value: str(value).encode())
        for kind in (Kind.INT, Kind.BIGINT, Kind.VARCHAR, Kind.MONTHS, Kind.CHANGE)
    },
}
TEXT_KINDS = frozenset(_OF_KINDS)
_PG_EPOCH_US = int(_PG_EPOCH.timestamp()) * 1_000_000
_PG_EPOCH_DAY = _PG_EPOCH_US // _DAY_US
_BINARIES: dict[int, Encode] = {
    BOOL: lambda value: b"\x01" if value else b"\x00",
    BYTEA: lambda value: cast(bytes, value),
    INT2: lambda value: struct.pack("!h", value),
    INT4: lambda value: struct.pack("!i", value),
    INT8: lambda value: struct.pack("!q", value),
    OID: lambda value: struct.pack("!I", value),
    FLOAT8: lambda value: struct.pack("!d", value),
    TEXT: _text,
    NUMERIC: lambda value: numeric_bytes(value),
    DATE: _date_bytes,
    TIMESTAMPTZ: _instant_bytes,
    INTERVAL: _interval_bytes,
}


NEGATIVE, NOT_A_NUMBER, INFINITE = 0x4000, 0xC000, (0xD000, 0xF000)
DIGITS = 4  # number of decimal digits in each base-10,000 digit of NUMERIC


def numeric_bytes(value: object) -> bytes:
    """Encode a decimal number as binary NUMERIC.

    The fields are digit count, weight of the first digit, sign, scale, and base-10,000 digits.

    >>> numeric_bytes(Decimal("-12.25")).hex()
    '0002000040000002000c09c4'
    """
    number = Decimal(cast(Decimal, value))
    scale = max(0, -cast(int, number.as_tuple().exponent))
    whole, _, part = f"{number.copy_abs():f}".partition(".")
    whole = whole.rjust(-(-len(whole) // DIGITS) * DIGITS, "0")
    part = part.ljust(-(-len(part) // DIGITS) * DIGITS, "0")
    written = whole + part
    digits = [int(written[index : index + DIGITS]) for index in range(0, len(written), DIGITS)]
    sign = NEGATIVE if number < 0 else 0
    head = struct.pack("!hhHH", len(digits), len(whole) // DIGITS - 1, sign, scale)
    return head + struct.pack(f"!{len(digits)}h", *digits)


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """Format options of COPY TO STDOUT.

    >>> CopyFormat.of("WITH (FORMAT csv, HEADER)")
    CopyFormat(csv=True, header=True, delimiter=b',')
    """

    csv: bool = False
    header: bool = False
    delimiter: bytes = b"\t"

    @classmethod
    def of(cls, options: str) -> CopyFormat:
        text = options.strip().rstrip(";").strip()
        found = _COPY_OPTIONS.fullmatch(text)
        if found is None:
            raise SlicemillError(
                f"COPY does not support {text}; use WITH (FORMAT text | csv, HEADER, DELIMITER ',')"
            )
        words = text.lower()
        csv = re.search(r"\bcsv\b", words) is not None
        delimiter = re.search(r"delimiter\s*'(.)'", text, re.IGNORECASE)
        header = re.search(r"\bheader\b(?!\s+(false|off|0))", words) is not None
        return cls(csv, header, delimiter[1].encode() if delimiter else b"," if csv else b"\t")

    def line(self, values: Sequence[bytes | None]) -> bytes:
        """Encode a row in the format of these options."""
        if self.csv:
            return (
                self.delimiter.join(b"" if value is None else self._quoted(value) for value in values) + b"\n"
            )
        return copy_line(values, self.delimiter)

    def _quoted(self, value: bytes) -> bytes:
        """Quote a CSV value if necessary.

        Empty text is quoted, because it would otherwise be read as NULL.
        """
        if value and not any(mark in value for mark in (b'"', b"\n", b"\r", self.delimiter)):
            return value
        return b'"' + value.replace(b'"', b'""') + b'"'


_COPY_OPTION = r"(FORMAT\s+(?:text|csv)|csv|HEADER(?:\s+(?:true|on|1|false|off|0))?|DELIMITER\s*'.')"
_COPY_OPTIONS = re.compile(
    rf"|(WITH\s*)?(\(\s*{_COPY_OPTION}(\s*,\s*{_COPY_OPTION})*\s*\)|{_COPY_OPTION}(\s+{_COPY_OPTION})*)",
    re.IGNORECASE,
)


def copy_line(values: Sequence[bytes | None], delimiter: bytes = b"\t") -> bytes:
    """Encode a row in the text format of COPY TO STDOUT."""
    written = (b"\\N" if value is None else _escape_text(value, delimiter) for value in values)
    return delimiter.join(written) + b"\n"


def _escape_text(value: bytes, delimiter: bytes) -> bytes:
    for plain, written in ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")):
        value = value.replace(plain, written)
    return value if delimiter == b"\t" else value.replace(delimiter, b"\\" + delimiter)
