"""Ranges of rows by number, such as the last rows of each partition.

A run touches few of many numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.intervals import by_partition
from slicemill.columns.numbered import GrowingRows, Numbers, Places, grown, mostly_gone, touched
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice

_SPARSE = 4


def _no_places() -> Places:
    return np.zeros(0, np.int64)


@stored_as("rows.stretches", version=1)
@dataclass(slots=True)
class RowStretches:
    """Ranges of neighbouring rows, one for each number. `replace` supersedes a range.

    added   a1 a2 b1      starts    a  b      `replace` a by a2 a3: the range is appended,
            a2 a3                   3  2      and a1 a2 are dropped when many rows are unused
                          lengths   2  1
    """

    added: GrowingRows = field(default_factory=GrowingRows)
    starts: Places = field(default_factory=_no_places)
    lengths: Places = field(default_factory=_no_places)
    used: int = 0

    def reach(self, count: int) -> None:
        """Make room for `count` numbers."""
        self.starts, self.lengths = grown(self.starts, count), grown(self.lengths, count)

    def of(self, numbers: Places) -> tuple[pa.Table | None, Numbers]:
        """Return the rows of these numbers, and the number of each row.

        None stands for no rows.
        """
        lengths = self.lengths[numbers]
        if not lengths.any():
            return None, np.zeros(0, np.int32)
        rows = self.added.at(_places(self.starts[numbers], lengths))
        return rows, np.repeat(numbers, lengths).astype(np.int32)

    def replace(self, numbers: Places, lengths: Places, rows: pa.Table) -> None:
        """Replace the rows of these numbers. Rows are ordered as the numbers."""
        self.used += len(rows) - int(self.lengths[numbers].sum())
        self.starts[numbers] = self.added.rows + np.cumsum(lengths) - lengths
        self.lengths[numbers] = lengths
        self.added.add(rows)
        if mostly_gone(self.added.rows, self.used):
            self._tidy()

    def keep(self, alive: NDArray[np.bool_]) -> None:
        """Drop all numbers but these, and renumber them."""
        self.starts, self.lengths = self.starts[alive], self.lengths[alive]
        self.used = int(self.lengths.sum())
        self._tidy()

    def changed(self, change: Callable[[pa.Table], pa.Table]) -> RowStretches:
        """Return the same ranges with other columns."""
        pieces = [Slice(change(piece.table)) for piece in self.added.pieces]
        return RowStretches(GrowingRows(pieces, self.added.rows), self.starts, self.lengths, self.used)

    def _tidy(self) -> None:
        """Drop unused rows."""
        numbers = np.flatnonzero(self.lengths)
        numbers = numbers[np.argsort(self.starts[numbers])]
        lengths = self.lengths[numbers]
        self.added = self.added.only(_places(self.starts[numbers], lengths))
        self.starts[numbers] = np.cumsum(lengths) - lengths


def by_number(numbered: Numbers, count: int) -> tuple[Places, Numbers, Places]:
    """Like `by_partition`, faster if most of the `count` numbers have no rows."""
    if count <= _SPARSE * len(numbered):
        return by_partition(numbered, count)
    distinct, local = touched(numbered)
    order, groups, heads = by_partition(local, len(distinct))
    return order, distinct[groups].astype(np.int32), heads


def _places(starts: Places, lengths: Places) -> Places:
    """Return the row positions of consecutive ranges."""
    before = np.cumsum(lengths) - lengths
    places: Places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return places
