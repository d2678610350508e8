"""Conversion between Arrow tables and Python rows, as in the reference engine.

In rows, timestamps and intervals are microseconds, dates are days and periods are pairs, as in
`catalog/expressions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.arrow_schema import TS, to_arrow, with_system_columns
from slicemill.functions.vectors import list_values
from slicemill.types import OP, OPS, Kind, Row, Schema, Timed, Type

_AS_INT64 = (Kind.TIMESTAMP, Kind.INTERVAL)


def column_values(column: pa.ChunkedArray, type_: Type) -> list[object]:
    """Convert a column to values of the reference engine."""
    kind = type_.kind
    if kind is Kind.LIST:
        return list_values(column)
    if kind in _AS_INT64:
        column = column.cast(pa.int64())
    elif kind is Kind.DATE:
        column = column.cast(pa.int32())
    elif kind is Kind.CHANGE and pa.types.is_integer(column.type):
        return [OPS[index] for index in column.to_pylist()]
    elif kind is Kind.PERIOD:
        ends = [pc.struct_field(column, name).cast(pa.int64()).to_pylist() for name in ("begin", "end")]
        return [None if pair == (None, None) else pair for pair in zip(*ends, strict=True)]
    return cast(list[object], column.to_pylist())


def plain_rows(table: pa.Table, schema: Schema) -> list[Row]:
    columns = [column_values(table.column(column.name), column.type) for column in schema]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def timed_rows(table: pa.Table, schema: Schema) -> list[Timed]:
    times = table.column(TS).cast(pa.int64()).to_pylist()
    return [Timed(*pair) for pair in zip(times, plain_rows(table, schema), strict=True)]


def to_table(
    rows: Sequence[Timed], schema: Schema, arrivals: Sequence[int], seqs: Sequence[int] | None = None
) -> pa.Table:
    """Return Python rows as a table in the format of logs.

    `arrivals` are the arrival times of the tuples that caused the rows, and `seqs` the row numbers. By
    default rows are numbered consecutively.
    """
    arrow = to_arrow(schema)
    system = [
        pa.array(values, pa.int64())
        for values in ([t.ts for t in rows], range(len(rows)) if seqs is None else seqs, arrivals)
    ]
    return pa.table([*system, *_columns([t.row for t in rows], arrow)], schema=with_system_columns(arrow))


def plain_table(rows: Sequence[Row], schema: Schema) -> pa.Table:
    """Return Python rows that have no timestamp as a table."""
    arrow = to_arrow(schema)
    return pa.table(_columns(rows, arrow), schema=arrow)


def _columns(rows: Sequence[Row], arrow: pa.Schema) -> list[pa.Array]:
    return [_column((row[i] for row in rows), field) for i, field in enumerate(arrow)]


def _column(values: Iterable[object], field: pa.Field) -> pa.Array:
    if pa.types.is_struct(field.type):
        begin, end = field.type.field(0).name, field.type.field(1).name
        values = (None if v is None else {begin: v[0], end: v[1]} for v in cast(Iterable[Row], values))
    elif field.name == OP:
        values = (OPS.index(cast(str, value)) for value in values)
    return pa.array(list(values), field.type)


def with_unique_names(table: pa.Table) -> pa.Table:
    """Rename columns so that names are unique, as JSON objects require: `n`, `n_1`.

    >>> with_unique_names(pa.table([[1], [2], [3]], names=["n", "n", "n_1"])).column_names
    ['n', 'n_2', 'n_1']
    """
    names = table.column_names
    taken, found = set(names), list[str]()
    for name in names:
        unique, number = name, 0
        while unique in found or (number and unique in taken):
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return table.rename_columns(found)
