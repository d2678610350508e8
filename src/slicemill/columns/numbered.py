"""Values and rows by key number, for runs with few of many keys.

`keys` numbers the keys. The cost of a run depends on its number of rows and not on the number of keys. A run
reads and writes only the entries of its own keys. Arrays are copied only to grow, which is amortised by
doubling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.pieces import together
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice

Places: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.int32]
Figure = TypeVar("Figure", bound=np.generic)

_LEAST_ROOM = 64
# A piece is merged with the next one while it is less than _STEP times as long, or both are small.
_STEP, _SMALL = 8, 4_096
# Unused rows are dropped when they outnumber the used ones and this number.
_MANY_GONE = 1_024


def touched(numbered: NDArray[np.integer[Any]]) -> tuple[Places, Numbers]:
    """Return sorted distinct numbers, and each row's index among them."""
    distinct, local = np.unique(numbered, return_inverse=True)
    return distinct.astype(np.int64), local.astype(np.int32)


def grown(figures: NDArray[Figure], count: int, first: int = 0) -> NDArray[Figure]:
    """Return `figures` extended to `count` keys, for writing.

    New keys start with `first`. The result is the start of a larger array, which the next call reuses. So
    the caller must own the array, and must not share parts of it.
    """
    known = len(figures)
    if known >= count:
        return figures
    room = _room_of(figures)
    if room is None or len(room) < count:
        room = np.empty(max(_LEAST_ROOM, count + count // 2), figures.dtype)
        room[:known] = figures
    room[known:count] = first
    return room[:count]


def _room_of(figures: NDArray[Figure]) -> NDArray[Figure] | None:
    """Return the larger array that `figures` is the start of, or None."""
    room = figures.base
    if not isinstance(room, np.ndarray) or room.base is not None or room.ndim != 1:
        return None
    is_first = room.__array_interface__["data"][0] == figures.__array_interface__["data"][0]
    return room if is_first and room.dtype == figures.dtype else None


def _no_places() -> Places:
    return np.zeros(0, np.int64)


@stored_as("rows.growing", version=1)
@dataclass(slots=True)
class GrowingRows:
    """Append-only rows in immutable pieces.

    Neighbouring pieces are merged, so that there are few. Rows keep their positions.
    """

    pieces: list[Slice] = field(default_factory=list)
    rows: int = 0

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows and self.pieces:
            return
        self.rows += rows.num_rows
        self.pieces.append(Slice(rows.combine_chunks()))
        while len(self.pieces) > 1 and _belong_together(*self.pieces[-2:]):
            last = self.pieces.pop().table
            self.pieces[-1] = Slice(together([self.pieces[-1].table, last]).combine_chunks())

    def at(self, places: NDArray[np.integer[Any]]) -> pa.Table:
        """Return the rows at these positions.

        Arrow's own `take` would concatenate the pieces each time.
        """
        tables = [piece.table for piece in self.pieces]
        if len(tables) == 1:
            return tables[0].take(pa.array(places))
        ends = np.cumsum([table.num_rows for table in tables])
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        stops = np.searchsorted(ordered, ends)
        found = [
            table.take(pa.array(ordered[start:stop] - (end - table.num_rows)))
            for table, end, start, stop in zip(tables, ends, [0, *stops[:-1]], stops, strict=True)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return together(found).combine_chunks().take(pa.array(back))

    def behind(self, places: NDArray[np.integer[Any]], new: pa.Table) -> pa.Table:
        """Return the rows at these positions, followed by new ones."""
        return together([self.at(places), new]) if len(places) else new

    def only(self, places: NDArray[np.integer[Any]]) -> GrowingRows:
        """Return only these rows, at new positions."""
        found = GrowingRows()
        if self.pieces:
            found.add(self.at(places))
        return found


def mostly_gone(rows: int, used: int) -> bool:
    """Return True if so many rows are unused that compaction pays off."""
    return rows - used > max(used, _MANY_GONE)


@stored_as("rows.by_number", version=1)
@dataclass(slots=True)
class RowsByNumber:
    """One row for each number. `replace` supersedes it.

    `places` has the position of the row, -1 for none:

        added   a1 b1 c1      places   a  b  c  d      `replace` b and d by b2 and d1: they are appended,
                b2 d1                  0  3  2  4      and b1 is dropped when many rows are unused
    """

    added: GrowingRows = field(default_factory=GrowingRows)
    places: Places = field(default_factory=_no_places)
    used: int = 0

    @staticmethod
    def of_all(table: pa.Table | None) -> RowsByNumber:
        """Return rows numbered by their positions."""
        found = RowsByNumber()
        if table is not None:
            found.reach(table.num_rows)
            found.replace(np.arange(table.num_rows), table)
        return found

    def reach(self, count: int) -> None:
        """Make room for `count` numbers."""
        self.places = grown(self.places, count, -1)

    def replace(self, numbers: Places, rows: pa.Table) -> None:
        """Replace the rows of these numbers."""
        self.used += int(np.count_nonzero(self.places[numbers] < 0))
        self.places[numbers] = self.added.rows + np.arange(len(numbers))
        self.added.add(rows)
        if mostly_gone(self.added.rows, self.used):
            self._tidy()

    def keep(self, alive: NDArray[np.bool_]) -> None:
        """Drop all numbers but these, and renumber them."""
        self.places = self.places[alive]
        self._tidy()

    def _tidy(self) -> None:
        """Drop unused rows."""
        numbers = np.flatnonzero(self.places >= 0)
        in_order = np.sort(self.places[numbers])
        self.added = self.added.only(in_order)
        self.places[numbers] = np.searchsorted(in_order, self.places[numbers])
        self.used = len(numbers)


def _belong_together(older: Slice, newer: Slice) -> bool:
    old, new = len(older.table), len(newer.table)
    return old < _STEP * new or old + new <= _SMALL
