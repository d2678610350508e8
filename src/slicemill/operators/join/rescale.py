"""Build a subtask's join state after a rescale (S41).

The new state is built from the states of all old subtasks. A stored row is kept if the new subtask stores
it, and a waiting row if the new subtask reads it. Each row is read once, in arrival order. New slices have
equal numbers of rows (S39).

If several subtasks find pairs of the same new row, pairs are ordered by the sequence numbers of the older
rows. A join in a single subtask does not store these numbers. Its rows then get negative numbers here,
which keep their order and precede the numbers of later rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from slicemill.catalog.expressions import Expr
from slicemill.operators.join.block import (
    BLOCK_SEQ,
    BLOCK_TS,
    FIRST,
    HASH,
    MASK,
    TIME,
    QueryBits,
    column_numbers,
    conform_table,
    group_by_hash,
)
from slicemill.operators.join.hashing import invert_hashes
from slicemill.operators.join.heavy_keys import broadcast_mask
from slicemill.operators.join.prepare import hash_column, key_column
from slicemill.operators.join.spec import KeyTable, SharedJoin
from slicemill.operators.join.state import (
    JoinSide,
    JoinState,
    SideState,
    StoredSlice,
    replace_masks,
    resize_mask,
    table_of,
)
from slicemill.operators.protocol import Keys
from slicemill.operators.rescale import KeptRows, Redistribution
from slicemill.shedding.accuracy import merge_reports

# maximum number of state slices that a rescale creates per input
_SLICES = 8
# number of rows per state slice, unless this gives more than the maximum number of slices
_SMALL_ROWS = 4096


# function that returns the values of a key expression from a table of stored rows
ValueOf: TypeAlias = Callable[[pa.Table, Expr], pa.Array]


def redistribute_state(
    operator: SharedJoin, states: Sequence[JoinState | None], change: Redistribution
) -> JoinState:
    """Return the join state of one subtask after a rescale.

    At least one old subtask has state.
    """
    found = [state for state in states if state is not None]
    whole = JoinState(found[0].query_bits, measures=found[0].measures)
    whole.measures.begin_anew()
    keys = KeyTable(operator.inputs, operator.members)
    lines = {line for state in found for line in state.late}
    for number, name in enumerate(operator.inputs):
        value = partial(_key_values, operator, keys.keys[number])

        def moved(
            sides: Sequence[SideState | None], number: int = number, value: ValueOf = value
        ) -> SideState:
            return redistribute_side(sides, number, operator.inputs[number], whole.query_bits, change, value)

        whole.sides[name] = moved(
            [None if state is None else state.sides.get(name, SideState()) for state in states]
        )
        for line in lines:
            late = [
                None if state is None else state.late.get(line, {}).get(name, SideState()) for state in states
            ]
            whole.late.setdefault(line, {})[name] = moved(late)
    # Only subtask 0 continues to report the join results that were shed before the rescale.
    if change.after.number == 0:
        names = {name for state in found for name in state.sheds}
        whole.sheds = {
            name: merge_reports([s.sheds[name] for s in found if name in s.sheds]) for name in names
        }
    return whole


def _key_values(operator: SharedJoin, keys: Sequence[Keys], table: pa.Table, key: Expr) -> pa.Array:
    """Return the values of one expression of a join key, computed from a table of stored rows."""
    number = next(number for number, parts in enumerate(keys) if key in parts)
    name = key_column(operator, number, keys[number].index(key))
    if name in table.column_names:
        return table.column(name)
    hashes = column_numbers(table, hash_column(number)).view(np.uint64)
    # For a join key of a single integer, blocks store only the hash, from which the key can be computed.
    return pa.array(invert_hashes(hashes).view(np.int64))


def redistribute_side(
    sides: Sequence[SideState | None],
    input_: int,
    name: str,
    query_bits: QueryBits,
    change: Redistribution,
    value: ValueOf,
) -> SideState:
    """Return the state of one join input in a subtask after a rescale."""

    def rows(table: pa.Table) -> KeptRows:
        return KeptRows(column_numbers(table, BLOCK_SEQ), lambda key: value(table, key))

    known = next(side for side in sides if side is not None)
    side = SideState(seen=known.seen, moments=known.moments)
    reading = [
        (subtask, one) for subtask in change.inputs[input_].sources if (one := sides[subtask]) is not None
    ]
    waiting = _in_order(
        [_at_home(t, subtask, change) for subtask, one in reading for t in _waiting(one)], BLOCK_TS
    )
    if waiting is not None:
        mine = waiting.filter(pa.array(change.is_read(input_, rows(waiting))))
        side.waiting = [mine.combine_chunks()] if mine.num_rows else []
    having = change.storing_states(input_, sides)
    stored = _in_order([table for one in having for table in _reachable_rows(one, query_bits)], TIME)
    if stored is not None:
        mine = stored.filter(pa.array(change.is_stored(input_, rows(stored))))
        side.slices = list(_cut(mine, query_bits, name))
    lone = [one.lone for one in sides if one is not None and one.lone is not None]
    # Rows with a NULL key never match, so any subtask can emit them, and subtask 0 does.
    if lone and change.after.number == 0:
        side.lone = _in_order(lone, BLOCK_TS)
    return side


def _at_home(table: pa.Table, subtask: int, change: Redistribution) -> pa.Table:
    """Return a subtask's waiting rows, except copies of rows that another subtask also has.

    All subtasks read the rows of a heavy key, which has too many rows for one subtask. Only the waiting rows
    of the key's home subtask are returned.
    """
    away = [key for key in change.heavy if key.home != subtask]
    hashes = column_numbers(table, HASH).view(np.uint64)
    return (
        table.filter(pa.array(~broadcast_mask(away, hashes, column_numbers(table, BLOCK_TS))))
        if away
        else table
    )


def _waiting(side: SideState) -> Iterator[pa.Table]:
    for index, held in enumerate(side.waiting):
        yield table_of(held).slice(0 if index else side.taken)


def _reachable_rows(side: SideState, query_bits: QueryBits) -> Iterator[pa.Table]:
    """Yield the stored rows that at least one query still selects.

    The masks of the returned rows contain only queries that still use the slice.
    """
    names = [f"{MASK}{word}" for word in range(query_bits.words)]
    for stored in side.slices:
        block = stored.block(query_bits.words)
        table = block.whole_table.drop_columns([FIRST])
        for name in (name for name in names if name not in table.column_names):
            table = table.append_column(name, pa.array(np.zeros(block.rows, np.uint64)))
        masks = block.words & resize_mask(stored.live, query_bits.words)
        yield replace_masks(table, masks).filter(pa.array(masks.any(axis=1)))


def _in_order(tables: Iterable[pa.Table], time: str) -> pa.Table | None:
    """Concatenate the rows of several subtasks, sorted by (time, sequence number).

    If some rows have no sequence number, all rows are renumbered. Rows without a number then precede numbered
    rows of the same time.
    """
    found = [table for table in tables if table.num_rows]
    if not found:
        return None
    numbered = all(BLOCK_SEQ in table.column_names for table in found)
    fields = {field.name: field for table in found for field in table.schema}
    fields.setdefault(BLOCK_SEQ, pa.field(BLOCK_SEQ, pa.int64()))
    schema = pa.schema(fields.values())
    whole = pa.concat_tables([conform_table(table, schema) for table in found]).combine_chunks()
    order = np.lexsort([column_numbers(whole, name) for name in (BLOCK_SEQ, time)])
    whole = whole.take(pa.array(order))
    if numbered:
        return whole
    index = whole.schema.get_field_index(BLOCK_SEQ)
    return whole.set_column(index, schema.field(BLOCK_SEQ), pa.array(np.arange(-whole.num_rows, 0)))


def _cut(table: pa.Table, query_bits: QueryBits, name: str) -> Iterator[StoredSlice]:
    """Divide stored rows into state slices of about equal size, oldest slice first."""
    side = JoinSide(SideState(), query_bits, name, table.schema, asked=True)
    count = min(_SLICES, -(-table.num_rows // _SMALL_ROWS))
    borders = np.linspace(0, table.num_rows, count + 1).astype(int).tolist() if count else []
    for begin, end in pairwise(borders):
        yield side.stored(
            group_by_hash(table.slice(begin, end - begin).combine_chunks(), query_bits.words)[0]
        )
