"""Schemas of streams as Arrow schemas, and the system columns of stored tuples.

A stored table starts with three int64 columns: `_ts` (timestamp, µs), `_seq` (arrival number, assigned
once at the intake and kept in derived streams) and `_arr` (arrival time, µs). The stream's own columns
follow. A table may also have helper columns: the row order by partition for a shuffle (`runtime.shuffle`),
or the sort keys for merging rows of several partitions (`columns.merge`). Tuples are always ordered by
(`_ts`, `_seq`).
"""

from __future__ import annotations

import re

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    CHANGE,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MONTHS,
    NULL,
    OP,
    OPS,
    PERIOD,
    TIMESTAMP,
    VARCHAR,
    Column,
    Kind,
    Schema,
    Type,
    decimal,
    list_of,
)

TS = "_ts"
SEQ = "_seq"
ARRIVAL = "_arr"
_RESERVED = re.compile(r"_ts|_seq|_arr|_(order|subtask)_[0-9a-f]{10}|_tie_\d+_\d+", re.IGNORECASE)

_INSTANT = pa.timestamp("us", tz="UTC")
_PERIOD = pa.struct([pa.field("begin", _INSTANT), pa.field("end", _INSTANT)])

_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.VARCHAR: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.TIMESTAMP: _INSTANT,
    Kind.DATE: pa.date32(),
    Kind.INTERVAL: pa.duration("us"),
    Kind.MONTHS: pa.int32(),
    Kind.PERIOD: _PERIOD,
    Kind.CHANGE: pa.int8(),
    Kind.NULL: pa.null(),
}
_LARGE = {Kind.VARCHAR: pa.large_string(), Kind.BINARY: pa.large_binary()}
_ESL: dict[pa.DataType, Type] = {
    pa.bool_(): BOOLEAN,
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.float64(): DOUBLE,
    pa.string(): VARCHAR,
    pa.large_string(): VARCHAR,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    _INSTANT: TIMESTAMP,
    pa.date32(): DATE,
    pa.duration("us"): INTERVAL,
    _PERIOD: PERIOD,
    pa.null(): NULL,
}

# Keys of Arrow field metadata for properties of a type that Arrow cannot express.
_LENGTH = b"esl.length"
_MONTHS = b"esl.months"
_DEFAULT = b"esl.default"


class ArrowSchemaError(SlicemillError):
    """Error: a column type of SQL or of Arrow has no counterpart."""


def arrow_type(type_: Type, large: bool = False) -> pa.DataType:
    """Return the Arrow type of a SQL type.

    `large` selects 64-bit offsets for text and bytes, for columns of more than 2 GiB.
    """
    if type_.kind is Kind.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    if type_.element is not None:
        return pa.list_(arrow_type(type_.element, large))
    found = (_LARGE.get(type_.kind) if large else None) or _ARROW.get(type_.kind)
    if found is None:
        raise ArrowSchemaError(f"a value of type {type_} cannot be stored; cast it to a type of its own")
    return found


def to_arrow(schema: Schema, large: bool = False) -> pa.Schema:
    """Return a stream's schema as an Arrow schema, without system columns.

    Metadata marks VARCHAR(n) and month intervals, so that `from_arrow` restores them.
    """
    return pa.schema([_field(column, large) for column in schema])


def _field(column: Column, large: bool) -> pa.Field:
    if _RESERVED.fullmatch(column.name) or (column.name.lower() == OP and column.type != CHANGE):
        raise ArrowSchemaError(f"column {column.name} has the name of a system column; rename it (AS)")
    metadata = {}
    if column.type.length is not None:
        metadata[_LENGTH] = str(column.type.length).encode()
    if column.type.kind is Kind.MONTHS:
        metadata[_MONTHS] = b"1"
    return pa.field(column.name, arrow_type(column.type, large), metadata=metadata or None)


def from_arrow(schema: pa.Schema) -> Schema:
    """Return the SQL columns of an Arrow schema, without system columns.

    >>> print(from_arrow(to_arrow(Schema((Column("item", Type(Kind.VARCHAR, length=8)), Column("n", INT))))))
    (item VARCHAR(8), n INT)
    """
    return Schema(
        tuple(Column(field.name, esl_type(field)) for field in schema if not is_system_column(field.name))
    )


def esl_type(field: pa.Field) -> Type:
    """Return the SQL type of an Arrow column, or raise ArrowSchemaError."""
    metadata = field.metadata or {}
    if _LENGTH in metadata:
        return Type(Kind.VARCHAR, length=int(metadata[_LENGTH]))
    if _MONTHS in metadata:
        return MONTHS
    if field.name == OP:
        return CHANGE
    if pa.types.is_decimal128(field.type):
        return decimal(field.type.precision, field.type.scale)
    if pa.types.is_list(field.type):
        return list_of(esl_type(pa.field(field.name, field.type.value_type)))
    if field.type not in _ESL:
        raise ArrowSchemaError(f"column {field.name}: no ESL type is like {field.type}; cast it first")
    return _ESL[field.type]


def with_default(columns: pa.Schema, values: pa.Table) -> pa.Schema:
    """Set column defaults from the single row of `values`.

    A row that was stored without one of these columns is read with the default.
    """
    for name in values.column_names:
        index = columns.get_field_index(name)
        field = columns.field(index)
        batch = pa.record_batch([values.column(name).combine_chunks()], schema=pa.schema([field]))
        kept = {**(field.metadata or {}), _DEFAULT: batch.serialize().to_pybytes()}
        columns = columns.set(index, field.with_metadata(kept))
    return columns


def without_defaults(columns: pa.Schema) -> pa.Schema:
    """Return the columns as declared, without their default values."""
    for index, field in enumerate(columns):
        if _DEFAULT in (field.metadata or {}):
            kept = {name: value for name, value in field.metadata.items() if name != _DEFAULT}
            columns = columns.set(index, field.with_metadata(kept or None))
    return columns


def with_default_columns(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Add missing columns that have a default to a stored table."""
    for field in columns:
        if _DEFAULT in (field.metadata or {}) and field.name not in table.column_names:
            table = table.append_column(field.name, _missing(field, table.num_rows))
    return table


def columns_with_default(columns: pa.Schema) -> frozenset[str]:
    return frozenset(field.name for field in columns if _DEFAULT in (field.metadata or {}))


def _missing(field: pa.Field, rows: int) -> pa.Array:
    """Return a column filled with the field's default, or with NULL."""
    default = (field.metadata or {}).get(_DEFAULT)
    if default is None:
        return pa.nulls(rows, field.type)
    batch = pa.ipc.read_record_batch(pa.py_buffer(default), pa.schema([field]))
    return pa.repeat(batch.column(0)[0], rows)


def is_system_column(name: str) -> bool:
    return _RESERVED.fullmatch(name) is not None


def with_system_columns(columns: pa.Schema) -> pa.Schema:
    """Return a stored table's schema: `_ts`, `_seq`, `_arr` and the columns."""
    system = [pa.field(name, pa.int64(), nullable=False) for name in (TS, SEQ, ARRIVAL)]
    return pa.schema([*system, *columns])


def as_results(table: pa.Table) -> pa.Table:
    """Convert a stored table to the result table that users read.

    `_ts` becomes a UTC timestamp and `_op` becomes text; `_seq` and `_arr` are dropped.
    """
    shown = table.select([name for name in table.column_names if name not in (SEQ, ARRIVAL)])
    if (index := shown.schema.get_field_index(OP)) >= 0:
        shown = shown.set_column(index, pa.field(OP, pa.string(), nullable=False), op_names(shown.column(OP)))
    return shown.set_column(0, pa.field(TS, _INSTANT, nullable=False), shown.column(TS).cast(_INSTANT))


def op_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the `_op` column of a changelog as text."""
    words = pa.array(OPS)
    chunks = [words.take(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.string())


def conform(table: pa.Table, schema: pa.Schema, arrival_us: int = 0) -> pa.Table:
    """Convert a stored table to the columns of `schema`.

    A missing `_seq` is 0, a missing `_arr` is `arrival_us`. Any other missing column is filled with its
    default or NULL: no query needed it, or it was added later. Columns of the right type are not copied.
    """
    if table.schema.equals(schema):
        return table
    fill = {SEQ: 0, ARRIVAL: arrival_us}
    present = set(table.column_names)
    columns = []
    for field in schema:
        if field.name in present:
            column = table.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        elif field.name in fill:
            columns.append(pa.repeat(pa.scalar(fill[field.name], field.type), table.num_rows))
        elif field.name == TS:
            raise ArrowSchemaError(f"column {TS} is missing; there are {table.column_names}")
        else:
            columns.append(_missing(field, table.num_rows))
    return pa.table(columns, schema=schema)
