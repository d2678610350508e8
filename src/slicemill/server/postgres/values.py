"""Values as PostgreSQL writes them, in text and, for numbers and times, in binary; parameters back."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import cast

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.esl.types.schema import Kind
from slicemill.scalar.vectors import list_values
from slicemill.server.parameters import UntypedText
from slicemill.server.postgres.wire import ColumnDescription

BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON = 16, 17, 20, 21, 23, 25, 114
FLOAT4, FLOAT8, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC = (
    *(700, 701, 1043, 1082, 1114, 1184),
    *(1186, 1700),
)
UNKNOWN = 705
# The types of lists, by those of their elements.
ARRAYS = {
    BOOL: 1000,
    BYTEA: 1001,
    INT8: 1016,
    INT2: 1005,
    INT4: 1007,
    TEXT: 1009,
    FLOAT8: 1022,
    DATE: 1182,
    TIMESTAMPTZ: 1185,
    INTERVAL: 1187,
    NUMERIC: 1231,
}

_PG_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_SIZES = {BOOL: 1, INT2: 2, INT4: 4, FLOAT4: 4, DATE: 4, INT8: 8, FLOAT8: 8, TIMESTAMP: 8, TIMESTAMPTZ: 8}
Encode = Callable[[object], bytes]


def describe_columns(schema: pa.Schema) -> list[ColumnDescription]:
    """The columns of a table, as PostgreSQL numbers their types."""
    return [ColumnDescription(field.name, oid := _oid(field.type), type_size(oid)) for field in schema]


def type_size(oid: int) -> int:
    """The bytes of a value of a type; -1 where they differ from value to value."""
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
        (lambda one: pa.types.is_list(one) and _oid(one.value_type) in ARRAYS, 0),
        (pa.types.is_nested, JSON),
    )
    for matches, oid in tests:
        if matches(kind):
            return oid or ARRAYS[_oid(kind.value_type)]
    if pa.types.is_integer(kind):
        return INT2 if kind.bit_width < 16 else INT4 if kind.bit_width < 32 or kind == pa.int32() else INT8
    return TEXT


def encoded_columns(table: pa.Table, formats: Sequence[int] = ()) -> list[list[bytes | None]]:
    """The values of each column as bytes; `formats` has 1 where a client wants binary."""
    found: list[list[bytes | None]] = []
    for place, column in enumerate(table.columns):
        binary = place < len(formats) and formats[place] == 1
        encode = _encoder_of(column.type, binary)
        values = _plain(column)
        found.append([None if value is None else encode(value) for value in values])
    return found


def encoded_values(columns: Sequence[Sequence[object]], kinds: Sequence[Kind]) -> list[list[bytes | None]]:
    """The same as text, of values as the engine has them: times and intervals as microseconds."""
    found: list[list[bytes | None]] = []
    for values, kind in zip(columns, kinds, strict=True):
        encode = _OF_KINDS[kind]
        found.append([None if value is None else encode(value) for value in values])
    return found


def _encoder_of(kind: pa.DataType, binary: bool) -> Encode:
    if not pa.types.is_list(kind) or _oid(kind) == JSON:
        return _encoder(_oid(kind), binary)
    oid = _oid(kind.value_type)
    element = _encoder(oid, binary)
    if not binary:
        return lambda value: _array_text([element(one) for one in cast(list[object], value)])
    return lambda value: _array_bytes([element(one) for one in cast(list[object], value)], oid)


def _array_text(elements: Sequence[bytes]) -> bytes:
    """A list as PostgreSQL writes it, each value in quotes: `{"1","2"}`."""
    quoted = (one.replace(b"\\", b"\\\\").replace(b'"', b'\\"') for one in elements)
    return b"{" + b",".join(b'"' + one + b'"' for one in quoted) + b"}"


def _array_bytes(elements: Sequence[bytes], oid: int) -> bytes:
    if not elements:
        return struct.pack("!iii", 0, 0, oid)
    head = struct.pack("!iiiii", 1, 0, oid, len(elements), 1)
    return head + b"".join(struct.pack("!i", len(one)) + one for one in elements)


def _plain(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(column.type):
        # As microseconds: a calendar of Python does not have every year.
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    elif pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us")).cast(pa.int64())
    elif pa.types.is_list(column.type):
        return list_values(column)
    return cast(list[object], column.to_pylist())


def _encoder(oid: int, binary: bool) -> Encode:
    if not binary:
        return _TEXTS.get(oid, lambda value: str(value).encode())
    encode = _BINARIES.get(oid)
    if encode is None:
        raise SlicemillError("a column of this type is sent as text only; ask for text results")
    return encode


def _instant(value: object) -> bytes:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=cast(int, value))
    except OverflowError:
        return b"infinity" if cast(int, value) > 0 else b"-infinity"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f+00").encode()


def _interval(value: object) -> bytes:
    seconds, micros = divmod(abs(cast(int, value)), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if cast(int, value) < 0 else ""
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}.{micros:06d}".encode()


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
    NUMERIC: lambda value: f"{value:f}".encode(),
    JSON: lambda value: json.dumps(value, default=str, ensure_ascii=False).encode(),
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
_BINARIES: dict[int, Encode] = {
    BOOL: lambda value: b"\x01" if value else b"\x00",
    BYTEA: lambda value: cast(bytes, value),
    INT2: lambda value: struct.pack("!h", value),
    INT4: lambda value: struct.pack("!i", value),
    INT8: lambda value: struct.pack("!q", value),
    FLOAT8: lambda value: struct.pack("!d", value),
    TEXT: lambda value: str(value).encode(),
    NUMERIC: lambda value: _numeric_bytes(value),
    DATE: lambda value: struct.pack("!i", (cast(date, value) - _PG_EPOCH.date()).days),
    TIMESTAMPTZ: lambda value: struct.pack("!q", cast(int, value) - _PG_EPOCH_US),
}


def parameter_value(content: bytes | None, oid: int, binary: bool) -> object:
    """A parameter as Python has it; what has no type is told apart where it is used."""
    if content is None:
        return None
    try:
        if binary:
            return _FROM_BINARY[oid](content)
        if (element := _ELEMENTS.get(oid)) is not None:
            return _array_values(content.decode(), _FROM_TEXT.get(element, str))
        return _FROM_TEXT.get(oid, UntypedText)(content.decode())
    except KeyError:
        raise SlicemillError(f"parameters of type {oid} are not taken in binary; send them as text") from None
    except (ValueError, struct.error, InvalidOperation, UnicodeDecodeError) as problem:
        raise SlicemillError(f"a parameter cannot be read: {problem}") from None


_ZONED_DATE = re.compile(r"(\d{4}-\d\d-\d\d) [+-]\d\d(?::\d\d)?")


def _without_zone(text: str) -> str:
    """A date as it is: pgJDBC writes the zone behind it.

    >>> _without_zone("2026-01-31 +00")
    '2026-01-31'
    """
    found = _ZONED_DATE.fullmatch(text)
    return text if found is None else found[1]


_FROM_TEXT: dict[int, Callable[[str], object]] = {
    BOOL: lambda text: text.lower() in ("t", "true", "on", "1"),
    INT2: int,
    INT4: int,
    INT8: int,
    FLOAT4: float,
    FLOAT8: float,
    NUMERIC: Decimal,
    TEXT: str,
    VARCHAR: str,
    0: lambda text: UntypedText(_without_zone(text)),
    DATE: lambda text: date.fromisoformat(_without_zone(text)),
    TIMESTAMP: datetime.fromisoformat,
    TIMESTAMPTZ: datetime.fromisoformat,
    BYTEA: lambda text: bytes.fromhex(text.removeprefix("\\x")),
}
_ELEMENTS = {array: element for element, array in ARRAYS.items()}
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)')


def _array_values(text: str, value_of: Callable[[str], object]) -> list[object]:
    """The values of a list with one dimension, as PostgreSQL writes it: `{1,"a, b",NULL}`.

    >>> _array_values('{1,NULL,"3"}', int)
    [1, None, 3]
    """
    found: list[object] = []
    for element in _ELEMENT.finditer(text):
        if element[1] is not None:
            found.append(value_of(re.sub(r"\\(.)", r"\1", element[1])))
        else:
            found.append(None if element[2].upper() == "NULL" else value_of(element[2]))
    return found


_NEGATIVE, _NOT_A_NUMBER, _INFINITE = 0x4000, 0xC000, (0xD000, 0xF000)
_DIGITS = 4  # decimal ones, in each digit of NUMERIC


def _numeric_bytes(value: object) -> bytes:
    """A number in PostgreSQL's digits to the base of 10 000: count, weight of the first, sign, decimals.

    >>> _numeric_bytes(Decimal("-12.25")).hex()
    '0002000040000002000c09c4'
    """
    number = cast(Decimal, value)
    scale = max(0, -cast(int, number.as_tuple().exponent))
    whole, _, part = f"{abs(number):f}".partition(".")
    whole = whole.rjust(-(-len(whole) // _DIGITS) * _DIGITS, "0")
    part = part.ljust(-(-len(part) // _DIGITS) * _DIGITS, "0")
    written = whole + part
    digits = [int(written[place : place + _DIGITS]) for place in range(0, len(written), _DIGITS)]
    sign = _NEGATIVE if number < 0 else 0
    head = struct.pack("!hhHH", len(digits), len(whole) // _DIGITS - 1, sign, scale)
    return head + struct.pack(f"!{len(digits)}h", *digits)


def _numeric_value(content: bytes) -> Decimal:
    """Such a number as Python has it.

    >>> _numeric_value(_numeric_bytes(Decimal("1200000.05")))
    Decimal('1200000.05')
    """
    count, weight, sign, scale = struct.unpack("!hhHH", content[:8])
    if sign == _NOT_A_NUMBER or sign in _INFINITE:
        raise ValueError("a decimal is a finite number")
    if sign not in (0, _NEGATIVE) or count < 0 or scale > _MOST_DECIMALS or abs(weight) > _MOST_DECIMALS:
        raise ValueError("these bytes are no NUMERIC")
    number = 0
    for digit in struct.unpack(f"!{count}H", content[8:]):
        number = number * 10**_DIGITS + int(digit)
    written = Decimal(-number if sign else number)
    with localcontext(Context(prec=_MOST_DECIMALS)):
        return written.scaleb(_DIGITS * (weight + 1 - count)).quantize(Decimal(1).scaleb(-scale))


_MOST_DECIMALS = 1000
_FROM_BINARY: dict[int, Callable[[bytes], object]] = {
    BOOL: lambda content: content != b"\0",
    INT2: lambda content: struct.unpack("!h", content)[0],
    INT4: lambda content: struct.unpack("!i", content)[0],
    INT8: lambda content: struct.unpack("!q", content)[0],
    FLOAT4: lambda content: struct.unpack("!f", content)[0],
    FLOAT8: lambda content: struct.unpack("!d", content)[0],
    TEXT: lambda content: content.decode(),
    VARCHAR: lambda content: content.decode(),
    UNKNOWN: lambda content: content.decode(),
    0: lambda content: UntypedText(content.decode()),  # we have told that it is text
    BYTEA: lambda content: content,
    DATE: lambda content: _PG_EPOCH.date() + timedelta(days=struct.unpack("!i", content)[0]),
    TIMESTAMP: lambda content: _PG_EPOCH + timedelta(microseconds=struct.unpack("!q", content)[0]),
    TIMESTAMPTZ: lambda content: _PG_EPOCH + timedelta(microseconds=struct.unpack("!q", content)[0]),
    NUMERIC: _numeric_value,
}


@dataclass(frozen=True, slots=True)
class CopyForm:
    """How COPY TO STDOUT writes rows: its options in the words of PostgreSQL.

    >>> CopyForm.of("WITH (FORMAT csv, HEADER)")
    CopyForm(csv=True, header=True, delimiter=b',')
    """

    csv: bool = False
    header: bool = False
    delimiter: bytes = b"\t"

    @classmethod
    def of(cls, options: str) -> CopyForm:
        text = options.strip().rstrip(";").strip()
        found = _COPY_OPTIONS.fullmatch(text)
        if found is None:
            raise SlicemillError(
                f"COPY does not take {text} here; it takes WITH (FORMAT text | csv, HEADER, DELIMITER ',')"
            )
        words = text.lower()
        csv = re.search(r"\bcsv\b", words) is not None
        delimiter = re.search(r"delimiter\s*'(.)'", text, re.IGNORECASE)
        header = re.search(r"\bheader\b(?!\s+(false|off|0))", words) is not None
        return cls(csv, header, delimiter[1].encode() if delimiter else b"," if csv else b"\t")

    def line(self, values: Sequence[bytes | None]) -> bytes:
        """A row."""
        if self.csv:
            return (
                self.delimiter.join(b"" if value is None else self._quoted(value) for value in values) + b"\n"
            )
        return copy_line(values, self.delimiter)

    def _quoted(self, value: bytes) -> bytes:
        """An empty text is in quotes: without them it is NULL."""
        if value and not any(mark in value for mark in (b'"', b"\n", b"\r", self.delimiter)):
            return value
        return b'"' + value.replace(b'"', b'""') + b'"'


_COPY_OPTION = r"(FORMAT\s+(?:text|csv)|csv|HEADER(?:\s+(?:true|on|1|false|off|0))?|DELIMITER\s*'.')"
_COPY_OPTIONS = re.compile(
    rf"|(WITH\s*)?(\(\s*{_COPY_OPTION}(\s*,\s*{_COPY_OPTION})*\s*\)|{_COPY_OPTION}(\s+{_COPY_OPTION})*)",
    re.IGNORECASE,
)


def copy_line(values: Sequence[bytes | None], delimiter: bytes = b"\t") -> bytes:
    """A row as COPY TO STDOUT writes it."""
    written = (b"\\N" if value is None else _escaped(value, delimiter) for value in values)
    return delimiter.join(written) + b"\n"


def _escaped(value: bytes, delimiter: bytes) -> bytes:
    for plain, written in ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")):
        value = value.replace(plain, written)
    return value if delimiter == b"\t" else value.replace(delimiter, b"\\" + delimiter)
