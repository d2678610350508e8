"""Changelogs: rows with an operation, in the order of changes.

A change is an insert, a delete, or an update. An update is a pair of adjacent rows with equal `_ts` and
`_seq`: the old values (`update_before`), then the new values (`update_after`). For counting rows,
`update_before` acts as a delete and `update_after` as an insert:

    _op             a table of sums by item
    insert          (clock, 10)      the item's first bid
    update_before   (clock, 10)      its second bid is 5
    update_after    (clock, 15)
    delete          (clock, 15)      with HAVING sum(price) < 20, and a third bid of 9
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.keys import Column, Keys, comparable, distinct_keys, to_array
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.types import OP, OPS, Schema

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = (np.int8(index) for index in range(len(OPS)))

Ops = NDArray[np.int8]


def ops_of(table: pa.Table) -> Ops:
    return np.asarray(to_array(table.column(OP)).to_numpy(zero_copy_only=False), np.int8)


def adds(ops: Ops) -> Bools:
    """Return a mask of the rows that are inserts or `update_after`.

    All other rows are retractions.
    """
    return np.asarray((ops == INSERT) | (ops == UPDATE_AFTER))


def with_ops(table: pa.Table, ops: Ops, index: int = 3) -> pa.Table:
    """Insert the `_op` column after the system columns."""
    return table.add_column(index, pa.field(OP, pa.int8()), pa.array(ops))


def replace_ops(table: pa.Table, ops: Ops) -> pa.Table:
    index = table.schema.get_field_index(OP)
    return table.set_column(index, table.schema.field(index), pa.array(ops))


def filter_changes(table: pa.Table, holds: Bools) -> pa.Table:
    """Filter a changelog by the mask `holds`.

    If only one row of an update passes, this row becomes a delete or an insert.
    """
    ops = ops_of(table)
    other = np.zeros(len(ops), np.bool_)
    before = np.flatnonzero(ops == UPDATE_BEFORE)
    other[before], other[before + 1] = holds[before + 1], holds[before]
    alone = np.where(ops == UPDATE_BEFORE, DELETE, np.where(ops == UPDATE_AFTER, INSERT, ops))
    return replace_ops(table, np.where(other, ops, alone).astype(np.int8)).filter(pa.array(holds))


def without_unchanged(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Drop updates that do not change these columns.

    `columns` must be all columns of the stream.
    """
    before = np.flatnonzero(ops_of(table) == UPDATE_BEFORE)
    if not len(before):
        return table
    same = np.ones(len(before), np.bool_)
    for name in columns:
        same &= same_values(table.column(name), before, before + 1)
    if not same.any():
        return table
    stays = np.ones(table.num_rows, np.bool_)
    stays[before[same]] = stays[before[same] + 1] = False
    return table.filter(pa.array(stays))


def same_values(column: Column, left: Int64s, right: Int64s) -> Bools:
    """Return a mask of row pairs with equal values, where equality is that of GROUP BY."""
    same = np.ones(len(left), np.bool_)
    for part in comparable(column):
        a, b = part.take(pa.array(left)), part.take(pa.array(right))
        equal = pc.fill_null(pc.equal(a, b), False)
        both = pc.and_(a.is_null(), b.is_null())
        same &= np.asarray(pc.or_(equal, both).to_numpy(zero_copy_only=False), np.bool_)
    return same


def table_of_now(table: pa.Table, schema: Schema) -> pa.Table:
    """Return the current table of a changelog, without the column `_op`.

    If the schema has a key, this is the last row of each key that is not deleted. Otherwise each row appears
    once for each insert without a matching delete. Rows are ordered by their last insert.
    """
    stored = table.column(OP)
    in_words = pa.types.is_string(stored.type)
    indices = pc.index_in(to_array(stored), value_set=pa.array(OPS)) if in_words else to_array(stored)
    ops = np.asarray(indices.to_numpy(zero_copy_only=False), np.int8)
    rows = table.drop_columns([OP])
    names = schema.own.names if schema.key is None else schema.key
    columns = [table.column(name) for name in names]
    numbered = Keys().number(distinct_keys(columns, table.num_rows), columns)
    if schema.key is not None:
        last = np.full(int(numbered.max(initial=-1)) + 1, -1, np.int64)
        last[numbered] = np.arange(len(ops))
        return rows.take(pa.array(np.sort(last[adds(ops)[last]])))
    return rows.take(pa.array(_remaining_rows(numbered, adds(ops))))


def inserts_of(table: pa.Table, schema: Schema) -> pa.Table:
    """Replace a changelog by one insert for each row of its current table.

    The column `_op` contains the operation as text.
    """
    now = table_of_now(table, schema)
    words = pa.repeat(pa.scalar(OPS[0]), now.num_rows)
    return now.add_column(1, table.schema.field(OP), words)


def _remaining_rows(numbered: NDArray[np.int32], comes: Bools) -> Int64s:
    """Return the positions of inserts without a matching delete.

    Deletes match the earliest inserts of equal rows, so the latest inserts remain.
    """
    sign = np.where(comes, 1, -1)
    counts = np.bincount(numbered, sign, minlength=int(numbered.max(initial=-1)) + 1).astype(np.int64)
    indices = np.flatnonzero(comes)[::-1]
    order = np.argsort(numbered[indices], kind="stable")
    ranked = numbered[indices][order]
    first = np.searchsorted(ranked, ranked)
    chosen = (np.arange(len(ranked)) - first) < counts[ranked]
    return np.sort(indices[order][chosen])
