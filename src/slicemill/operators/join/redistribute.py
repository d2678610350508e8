"""The state of a join in a cell of a new placement, from the states of all cells of the one before (S41).

Each row that is stored somewhere is looked at once, in the order in which rows came, and kept where it is
stored from now on; each row that waits, where it is read. Slices are cut anew, so that they have the same
number of rows (S39).

Where pairs of one tuple come from several cells, their order goes by the numbers of the older ones. A join
that had no need of them does not store them. What it stored then is numbered here, from below 0 up: in the
same order, and before all that comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.join.block import (
    FIRST,
    HASH,
    KEY,
    MASK,
    SEQ,
    TIME,
    TS,
    column_numbers,
    conformed,
    grouped,
)
from slicemill.operators.join.heavy import everywhere
from slicemill.operators.join.side import Side, masked, wide
from slicemill.operators.join.state import JoinState, SideState, Stored, table_of
from slicemill.operators.join.windows import QueryBits
from slicemill.operators.redistribution import KeyedRows, Redistribution
from slicemill.shedding.report import merged

_NO_NUMBER = -(2**62)
_SLICES = 8
_SMALL_ROWS = 4096  # fewer rows are not worth a slice of their own


def redistributed(states: Sequence[object], change: Redistribution) -> JoinState:
    """The state of one of the new cells."""
    found = [state for state in states if isinstance(state, JoinState)]
    whole = JoinState(found[0].seats, measures=found[0].measures)
    whole.measures.begin_anew()
    whole.sides = (_side(found, 0, change), _side(found, 1, change))
    if change.after.number == 0:  # what was given up so far is told once
        names = {name for state in found for name in state.sheds}
        whole.sheds = {name: merged([s.sheds[name] for s in found if name in s.sheds]) for name in names}
    return whole


def _side(states: Sequence[JoinState], number: int, change: Redistribution) -> SideState:
    seats, sides = states[0].seats, [state.sides[number] for state in states]
    side = SideState(seen=sides[0].seen, moments=sides[0].moments)
    # Where all cells get all rows, all of them wait in each.
    have = sides[:1] if change.before.by_time else sides
    at_home = ((_at_home(t, cell, change), t) for cell, one in enumerate(have) for t in _waiting(one))
    waiting = _in_order((table.filter(pa.array(mine)) for mine, table in at_home), TS)
    if waiting is not None:
        mine = waiting if change.after.by_time else waiting.filter(change.is_mine(_keyed(waiting)))
        side.waiting = [mine.combine_chunks()] if mine.num_rows else []
    stored = _in_order((table for one in sides for table in _stored(one, seats)), TIME)
    if stored is not None:
        mine = stored.filter(change.is_mine(_keyed(stored)))
        side.slices = list(_cut(mine, seats, number))
    return side


def _at_home(table: pa.Table, cell: int, change: Redistribution) -> NDArray[np.bool_]:
    """The rows that wait in a cell, without those that wait at their home as well."""
    away = [key for key in change.heavy if key.home != cell]
    return ~everywhere(away, column_numbers(table, HASH).view(np.uint64), column_numbers(table, TS))


def _waiting(side: SideState) -> Iterator[pa.Table]:
    for place, held in enumerate(side.waiting):
        yield table_of(held).slice(0 if place else side.taken)


def _stored(side: SideState, seats: QueryBits) -> Iterator[pa.Table]:
    """The rows of slices that somebody may still want, with the masks of those."""
    names = [f"{MASK}{word}" for word in range(seats.words)]
    for stored in side.slices:
        block = stored.block(seats.words)
        table = block.table.drop_columns([FIRST])
        missing = [name for name in names if name not in table.column_names]
        for name in missing:
            table = table.append_column(name, pa.array(np.zeros(block.rows, np.uint64)))
        masks = block.words & wide(stored.live, seats.words)
        yield masked(table, masks).filter(pa.array(masks.any(axis=1)))


def _in_order(tables: Iterable[pa.Table], time: str) -> pa.Table | None:
    """Rows of several cells by time, then by number; those without one come first, as each cell has them."""
    found = [table for table in tables if table.num_rows]
    if not found:
        return None
    for place, table in enumerate(found):
        if SEQ not in table.column_names:
            found[place] = table.append_column(SEQ, pa.array(np.full(table.num_rows, _NO_NUMBER)))
    schema = pa.schema({field.name: field for table in found for field in table.schema}.values())
    whole = pa.concat_tables([conformed(table, schema) for table in found]).combine_chunks()
    whole = whole.take(pa.array(np.lexsort([column_numbers(whole, name) for name in (SEQ, time)])))
    numbers = column_numbers(whole, SEQ)
    without = numbers == _NO_NUMBER
    if not without.any():
        return whole
    given = np.cumsum(without) - np.count_nonzero(without) - 1
    place = whole.schema.get_field_index(SEQ)
    return whole.set_column(place, whole.schema.field(place), pa.array(np.where(without, given, numbers)))


def _keyed(table: pa.Table) -> KeyedRows:
    places = sorted(int(name.removeprefix(KEY)) for name in table.column_names if name.startswith(KEY))
    return KeyedRows(
        column_numbers(table, SEQ),
        [table.column(f"{KEY}{place}") for place in places],
        column_numbers(table, HASH).view(np.uint64),
    )


def _cut(table: pa.Table, seats: QueryBits, number: int) -> Iterator[Stored]:
    """Slices with about the same number of rows, oldest first."""
    side = Side(SideState(), seats, number, table.schema, asked=True)
    count = min(_SLICES, -(-table.num_rows // _SMALL_ROWS))
    borders = np.linspace(0, table.num_rows, count + 1).astype(int).tolist() if count else []
    for begin, end in pairwise(borders):
        yield side.stored(grouped(table.slice(begin, end - begin).combine_chunks(), seats.words)[0])
