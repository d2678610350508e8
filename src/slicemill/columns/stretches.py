"""Some rows for each number, such as the last rows of each partition. A run touches few of many numbers."""

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
    """Stretches of neighbouring rows, one for each number. A later stretch replaces an earlier one.

    added   a1 a2 b1      starts    a  b      `replace` a by a2 a3: the stretch lies behind all others,
            a2 a3                   3  2      and a1 a2 go when many rows have gone
                          lengths   2  1
    """

    added: GrowingRows = field(default_factory=GrowingRows)
    starts: Places = field(default_factory=_no_places)
    lengths: Places = field(default_factory=_no_places)
    used: int = 0

    def reach(self, count: int) -> None:
        """Make room for so many numbers."""
        self.starts, self.lengths = grown(self.starts, count), grown(self.lengths, count)

    def of(self, numbers: Places) -> tuple[pa.Table | None, Numbers]:
        """Return the rows of these numbers, and the number of each row. None stands for no rows."""
        lengths = self.lengths[numbers]
        if not lengths.any():
            return None, np.zeros(0, np.int32)
        rows = self.added.at(_places(self.starts[numbers], lengths))
        return rows, np.repeat(numbers, lengths).astype(np.int32)

    def replace(self, numbers: Places, lengths: Places, rows: pa.Table) -> None:
        """Replace the rows of these numbers. The rows lie in the order of the numbers."""
        self.used += len(rows) - int(self.lengths[numbers].sum())
        self.starts[numbers] = self.added.rows + np.cumsum(lengths) - lengths
        self.lengths[numbers] = lengths
        self.added.add(rows)
        if mostly_gone(self.added.rows, self.used):
            self._tidy()

    def keep(self, alive: NDArray[np.bool_]) -> None:
        """Forget all numbers but these, which are counted anew."""
        self.starts, self.lengths = self.starts[alive], self.lengths[alive]
        self.used = int(self.lengths.sum())
        self._tidy()

    def changed(self, change: Callable[[pa.Table], pa.Table]) -> RowStretches:
        """Return the same stretches with other columns."""
        pieces = [Slice(change(piece.table)) for piece in self.added.pieces]
        return RowStretches(GrowingRows(pieces, self.added.rows), self.starts, self.lengths, self.used)

    def _tidy(self) -> None:
        """Forget rows of no stretch."""
        numbers = np.flatnonzero(self.lengths)
        numbers = numbers[np.argsort(self.starts[numbers])]
        lengths = self.lengths[numbers]
        self.added = self.added.only(_places(self.starts[numbers], lengths))
        self.starts[numbers] = np.cumsum(lengths) - lengths


def by_number(numbered: Numbers, count: int) -> tuple[Places, Numbers, Places]:
    """Like `by_partition`, at the cost of the rows where most of `count` numbers have none."""
    if count <= _SPARSE * len(numbered):
        return by_partition(numbered, count)
    distinct, local = touched(numbered)
    order, groups, heads = by_partition(local, len(distinct))
    return order, distinct[groups].astype(np.int32), heads


def _places(starts: Places, lengths: Places) -> Places:
    """Return the places of stretches, one behind the other."""
    before = np.cumsum(lengths) - lengths
    places: Places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return places
