"""Data types and schemas of ESL, the SQL for streams.

Times are int64 microseconds in all components. REAL and DOUBLE are both 64 bits wide, because sums over long
windows would be inaccurate with 32 bits. CHAR(n) and VARCHAR(n) are text of at most n characters, never
padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from slicemill.codec.registry import stored_as

MAX_DECIMAL_PRECISION = 38


class Kind(StrEnum):
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    INTERVAL = "INTERVAL"  # type of durations in microseconds
    MONTHS = "INTERVAL MONTH"  # type of a number of months, which has no fixed duration
    PERIOD = "PERIOD"  # type of the valid time [begin, end) of a temporal result (L3)
    LIST = "ARRAY"  # type of lists with elements of one type, as returned by collect_list
    CHANGE = "CHANGE"  # type of the operation of a changelog row
    NULL = "NULL"  # type of the literal NULL, which converts to every type
    ANY = "ANY"  # type of an aggregate's parameter without a declared type, which each call determines


class TimestampUnit(StrEnum):
    """Unit of a number in a source's TIMESTAMP column, counted from 1970."""

    SECONDS = "SECONDS"
    MILLIS = "MILLIS"
    MICROS = "MICROS"
    NANOS = "NANOS"


@dataclass(frozen=True, slots=True)
class Type:
    """Data type of a column or expression.

    `unit` is the time unit of numbers in a source's TIMESTAMP columns. It is None for all other types.
    """

    kind: Kind
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    unit: TimestampUnit | None = None
    element: Type | None = None  # type of the elements of a list

    def __str__(self) -> str:
        if self.kind is Kind.LIST:
            return f"{self.element}[]"
        if self.unit is not None:
            return f"{self.kind.value} {self.unit.value}"
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind is Kind.VARCHAR and self.length is not None:
            return f"VARCHAR({self.length})"
        return self.kind.value


BOOLEAN = Type(Kind.BOOLEAN)
INT = Type(Kind.INT)
BIGINT = Type(Kind.BIGINT)
DOUBLE = Type(Kind.DOUBLE)
VARCHAR = Type(Kind.VARCHAR)
BINARY = Type(Kind.BINARY)
TIMESTAMP = Type(Kind.TIMESTAMP)
DATE = Type(Kind.DATE)
INTERVAL = Type(Kind.INTERVAL)
MONTHS = Type(Kind.MONTHS)
PERIOD = Type(Kind.PERIOD)
CHANGE = Type(Kind.CHANGE)
NULL = Type(Kind.NULL)
ANY = Type(Kind.ANY)


def list_of(element: Type) -> Type:
    """Return the list type of an element type.

    Lists do not keep the length of VARCHAR(n).

    >>> str(list_of(INT))
    'INT[]'
    """
    return Type(Kind.LIST, element=VARCHAR if element.kind is Kind.VARCHAR else element)


def decimal(precision: int, scale: int) -> Type:
    return Type(Kind.DECIMAL, precision=min(precision, MAX_DECIMAL_PRECISION), scale=min(scale, precision))


# Type of each spelling in SQL, without parameters.
# CHAR, VARCHAR and DECIMAL take parameters (`binder.types`).
SPELLINGS: dict[str, Type] = {
    "BOOLEAN": BOOLEAN,
    "BOOL": BOOLEAN,
    "TINYINT": INT,
    "SMALLINT": INT,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "LONG": BIGINT,
    "FLOAT": DOUBLE,
    "REAL": DOUBLE,
    "DOUBLE": DOUBLE,
    "DECIMAL": decimal(10, 0),
    "DEC": decimal(10, 0),
    "NUMERIC": decimal(10, 0),
    "CHAR": VARCHAR,
    "CHARACTER": VARCHAR,
    "VARCHAR": VARCHAR,
    "STRING": VARCHAR,
    "TEXT": VARCHAR,
    "BINARY": BINARY,
    "TIMESTAMP": TIMESTAMP,
    "DATE": DATE,
    "INTERVAL": INTERVAL,
}

_NUMERIC_ORDER = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)


def is_numeric(type_: Type) -> bool:
    return type_.kind in _NUMERIC_ORDER or type_.kind in (Kind.NULL, Kind.ANY)


def is_integer(type_: Type) -> bool:
    return type_.kind in (Kind.INT, Kind.BIGINT, Kind.NULL, Kind.ANY)


def as_decimal(type_: Type) -> Type:
    """Return the decimal type that holds every value of an integer type."""
    return {Kind.INT: decimal(10, 0), Kind.BIGINT: decimal(20, 0)}.get(type_.kind, type_)


def common(left: Type, right: Type) -> Type | None:
    """Return the type to which two types convert implicitly, or None.

    >>> str(common(INT, DOUBLE)), common(VARCHAR, INT)
    ('DOUBLE', None)
    """
    if left.kind is Kind.NULL or left == right:
        return right
    if right.kind is Kind.NULL:
        return left
    if Kind.ANY in (left.kind, right.kind):
        return ANY
    if left.kind in _NUMERIC_ORDER and right.kind in _NUMERIC_ORDER:
        if Kind.DOUBLE in (left.kind, right.kind):
            return DOUBLE
        if Kind.DECIMAL in (left.kind, right.kind):
            a, b = as_decimal(left), as_decimal(right)
            assert a.precision is not None and a.scale is not None
            assert b.precision is not None and b.scale is not None
            whole = max(a.precision - a.scale, b.precision - b.scale)
            # If not all digits fit, the digits before the decimal point are kept, as in Spark.
            scale = min(max(a.scale, b.scale), MAX_DECIMAL_PRECISION - whole)
            return decimal(whole + scale, scale)
        return BIGINT
    if left.kind is right.kind is not Kind.LIST:
        return VARCHAR if left.kind is Kind.VARCHAR else left
    if {left.kind, right.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        return TIMESTAMP
    return None


def assignable(target: Type, value: Type) -> bool:
    """Return True if a value of type `value` can be stored as type `target`.

    Numeric types convert to each other. Other types need a common type.
    """
    return (is_numeric(target) and is_numeric(value)) or common(target, value) is not None


class ColumnOrigin(NamedTuple):
    """Join input or function call that provides a column.

    `column` is the column's name in that input.
    """

    input: str | int
    column: str


TimestampUnits: TypeAlias = tuple[tuple[str, TimestampUnit], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a schema.

    `name` is an identifier and is never parsed. `origin` has the join input and the name in that input.
    """

    name: str
    type: Type
    origin: ColumnOrigin | None = field(default=None, compare=False)

    def of(self, given: str | int) -> Column:
        """Return this column with the name `input.column`, for a join of several inputs."""
        return Column(f"{given}.{self.name}", self.type, ColumnOrigin(given, self.name))

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


OP = "_op"
# Operations of changelog rows, stored as 8-bit indexes into this tuple.
OPS = ("insert", "update_before", "update_after", "delete")


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema: columns in order, with names that are unique regardless of case.

    A `changelog` has `_op` as its first column, and its rows are changes of a table. `key` names the columns
    that identify a row of this table. It is () if the table has at most one row, and None if no key is
    known.
    """

    columns: tuple[Column, ...]
    changelog: bool = False
    key: tuple[str, ...] | None = None

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        lowered = name.lower()
        return next((column for column in self.columns if column.name.lower() == lowered), None)

    def index(self, name: str) -> int:
        """Return the index of a column by name; the column must exist."""
        return self.names.index(name)

    @property
    def units(self) -> TimestampUnits:
        """Return the columns with a unit of timestamps, each with its unit."""
        return tuple((column.name, column.type.unit) for column in self.columns if column.type.unit)

    @property
    def own(self) -> Schema:
        """Return the schema without the operation column of a changelog."""
        return Schema(self.columns[1:]) if self.changelog else self

    def with_units(self, units: TimestampUnits) -> Schema:
        """Return the schema with these units of timestamps, and no other units."""
        given = dict(units)
        return Schema(
            tuple(
                replace(column, type=replace(column.type, unit=given.get(column.name)))
                for column in self.columns
            )
        )

    def __str__(self) -> str:
        return f"({', '.join(str(column) for column in self.columns)})"


def changelog(columns: Iterable[Column], key: Iterable[str] | None) -> Schema:
    """Return the schema of the changelog of a table with these columns."""
    names = None if key is None else tuple(key)
    return Schema((Column(OP, CHANGE), *columns), changelog=True, key=names)


# Row as Python values, for code that processes rows one by one.


Row = tuple[object, ...]


@stored_as("timed", version=1)
class Timed(NamedTuple):
    """Row of a stream: timestamp in microseconds, and values in schema order."""

    ts: int
    row: Row
