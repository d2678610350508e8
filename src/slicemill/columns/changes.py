"""Rows of changelogs: changes of a table, in the order in which they happen.

A change is an insert, a delete, or an update. An update is two neighbouring rows of one timestamp and number,
what was before and what is after. To those who only count rows, `update_before` is a delete and
`update_after` an insert:

    _op             a table of sums by item
    insert          (clock, 10)      the item's first bid
    update_before   (clock, 10)      its second bid is 5
    update_after    (clock, 15)
    delete          (clock, 15)      somebody asked for HAVING sum(price) < 20, and the third was 9
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.keys import Column, Keys, comparable, distinct_keys, whole
from slicemill.esl.types.schema import OP, OPS, Schema

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = (np.int8(place) for place in range(len(OPS)))

Mask = NDArray[np.bool_]
Ops = NDArray[np.int8]
Places = NDArray[np.int64]


def ops_of(table: pa.Table) -> Ops:
    return np.asarray(whole(table.column(OP)).to_numpy(zero_copy_only=False), np.int8)


def adds(ops: Ops) -> Mask:
    """Which rows come into the table; the others leave it."""
    return np.asarray((ops == INSERT) | (ops == UPDATE_AFTER))


def with_ops(table: pa.Table, ops: Ops, place: int = 3) -> pa.Table:
    """A table of changes, from rows behind their system columns."""
    return table.add_column(place, pa.field(OP, pa.int8()), pa.array(ops))


def replaced_ops(table: pa.Table, ops: Ops) -> pa.Table:
    place = table.schema.get_field_index(OP)
    return table.set_column(place, table.schema.field(place), pa.array(ops))


def changes(before: pa.Table, after: pa.Table, was: Mask, is_: Mask) -> pa.Table:
    """What it takes from the rows of one table to those in the same places of another, row by row.

    `was` and `is_` say which rows there were and are.
    """
    count = len(was)
    places = np.arange(2 * count).reshape(2, count).T.reshape(-1)
    chosen = np.stack([was, is_], axis=1).reshape(-1)
    ops = np.stack(
        [np.where(is_, UPDATE_BEFORE, DELETE), np.where(was, UPDATE_AFTER, INSERT)], axis=1
    ).reshape(-1)
    rows = pa.concat_tables([before, after]).take(pa.array(places[chosen]))
    return with_ops(rows, ops[chosen])


def selected(table: pa.Table, holds: Mask) -> pa.Table:
    """The changes of the rows on which a condition holds: half of an update may be left, a change alone."""
    ops = ops_of(table)
    other = np.zeros(len(ops), np.bool_)
    before = np.flatnonzero(ops == UPDATE_BEFORE)
    other[before], other[before + 1] = holds[before + 1], holds[before]
    alone = np.where(ops == UPDATE_BEFORE, DELETE, np.where(ops == UPDATE_AFTER, INSERT, ops))
    return replaced_ops(table, np.where(other, ops, alone).astype(np.int8)).filter(pa.array(holds))


def without_unchanged(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The changes without updates after which these columns, all there are, are what they were before."""
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


def same_values(column: Column, left: Places, right: Places) -> Mask:
    """Where the values in two places of a column are the same, as GROUP BY compares them."""
    same = np.ones(len(left), np.bool_)
    for part in comparable(column):
        a, b = part.take(pa.array(left)), part.take(pa.array(right))
        equal = pc.fill_null(pc.equal(a, b), False)
        both = pc.and_(a.is_null(), b.is_null())
        same &= np.asarray(pc.or_(equal, both).to_numpy(zero_copy_only=False), np.bool_)
    return same


def table_of_now(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows that a changelog comes to, without `_op`: by its key, or without one each as often as it is.

    They come in the order in which the rows that are there now came last.
    """
    stored = table.column(OP)
    in_words = pa.types.is_string(stored.type)
    places = pc.index_in(whole(stored), value_set=pa.array(OPS)) if in_words else whole(stored)
    ops = np.asarray(places.to_numpy(zero_copy_only=False), np.int8)
    rows = table.drop_columns([OP])
    names = schema.own.names if schema.key is None else schema.key
    columns = [table.column(name) for name in names]
    numbered = Keys().number(distinct_keys(columns, table.num_rows), columns)
    if schema.key is not None:
        last = np.full(int(numbered.max(initial=-1)) + 1, -1, np.int64)
        last[numbered] = np.arange(len(ops))
        return rows.take(pa.array(np.sort(last[adds(ops)[last]])))
    return rows.take(pa.array(_left(numbered, adds(ops))))


def inserts_of(table: pa.Table, schema: Schema) -> pa.Table:
    """The shortest changelog that comes to the same, with what rows do in words, as users see it."""
    now = table_of_now(table, schema)
    words = pa.repeat(pa.scalar(OPS[0]), now.num_rows)
    return now.add_column(1, table.schema.field(OP), words)


def _left(numbered: NDArray[np.int32], comes: Mask) -> Places:
    """Of equal rows, as many of those that came last as are left."""
    sign = np.where(comes, 1, -1)
    counts = np.bincount(numbered, sign, minlength=int(numbered.max(initial=-1)) + 1).astype(np.int64)
    places = np.flatnonzero(comes)[::-1]
    order = np.argsort(numbered[places], kind="stable")
    ranked = numbered[places][order]
    first = np.searchsorted(ranked, ranked)
    chosen = (np.arange(len(ranked)) - first) < counts[ranked]
    return np.sort(places[order][chosen])
