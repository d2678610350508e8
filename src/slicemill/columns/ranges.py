"""Row ranges: rows sorted by partition, and the ranges that windows cover.

A *key number* is the number that an operator's dictionary of keys (`columns.keys`) assigns to a key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.columns.keys import GrowingRows, distinct_numbers, extend_array, mostly_unused
from slicemill.columns.pieces import Slice
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.kernels.kernel import kernel

# Time far beyond any timestamp, but small enough to be added to a timestamp without overflow.
FOREVER = 2**62


@kernel
def by_partition(partitions: Int32s, count: int) -> tuple[Int64s, Int32s, Int64s]:
    """Sort rows by partition, then by arrival, with a counting sort.

    Return the position that each sorted row has in the input, its partition, and the start of its
    partition.
    """
    following = np.zeros(count + 1, np.int64)
    for partition in partitions:
        following[partition + 1] += 1
    by_partitions, heads = np.empty(len(partitions), np.int32), np.empty(len(partitions), np.int64)
    for partition in range(count):
        head = following[partition]
        following[partition + 1] += head
        by_partitions[head : following[partition + 1]] = partition
        heads[head : following[partition + 1]] = head
    order = np.empty(len(partitions), np.int64)
    for index in range(len(partitions)):
        partition = partitions[index]
        order[following[partition]] = index
        following[partition] += 1
    return order, by_partitions, heads


@kernel
def starts_from(head: Int64s, ts: Int64s, lower: Int64s) -> Int64s:
    """For each row, return the first row of its partition with ts >= `lower`.

    The result is the row's position plus 1 if no row up to the row itself qualifies.
    """
    out = np.empty(len(ts), np.int64)
    start = 0
    for i in range(len(ts)):
        start = max(start, head[i])
        while start <= i and ts[start] < lower[i]:
            start += 1
        out[i] = start
    return out


@kernel
def ends_until(head: Int64s, ts: Int64s, upper: Int64s) -> Int64s:
    """For each row, return the end of the rows of its partition with ts <= `upper`.

    The end is exclusive. `upper` is not before the row's own time.
    """
    out = np.empty(len(ts), np.int64)
    end = 0
    for i in range(len(ts)):
        end = max(end, i + 1)
        while end < len(ts) and head[end] == head[i] and ts[end] <= upper[i]:
            end += 1
        out[i] = end
    return out


@kernel
def running_totals(partitions: Int32s, counted: Any, before: Int64s) -> Int64s:
    """Return a running sum of `counted` per partition, continued from `before`."""
    out = np.empty(len(partitions), np.int64)
    total = 0
    for i in range(len(partitions)):
        if i == 0 or partitions[i] != partitions[i - 1]:
            total = before[partitions[i]]
        total += counted[i]
        out[i] = total
    return out


def last_of_each(partitions: Int32s) -> Bools:
    """Return a mask of the last row of each partition."""
    out = np.ones(len(partitions), np.bool_)
    out[:-1] = partitions[1:] != partitions[:-1]
    return out


# Ranges of rows by key number, such as the last rows of each partition.
# They suit micro-batches that contain few of many keys.


_SPARSE = 4


def _no_positions() -> Int64s:
    return np.zeros(0, np.int64)


@stored_as("rows.stretches", version=1)
@dataclass(slots=True)
class RowRanges:
    """Ranges of adjacent rows, with one range for each key number.

    added   a1 a2 b1      starts    a  b      `replace` a by a2 a3: the range is appended,
            a2 a3                   3  2      and a1 a2 are dropped when many rows are unused
                          lengths   2  1
    """

    added: GrowingRows = field(default_factory=GrowingRows)
    starts: Int64s = field(default_factory=_no_positions)
    lengths: Int64s = field(default_factory=_no_positions)
    used: int = 0

    def reach(self, count: int) -> None:
        """Extend `starts` and `lengths` to `count` key numbers."""
        self.starts, self.lengths = extend_array(self.starts, count), extend_array(self.lengths, count)

    def of(self, numbers: Int64s) -> tuple[pa.Table | None, Int32s]:
        """Return the rows of the keys with these numbers, and each row's key number.

        Return None if the keys have no rows.
        """
        lengths = self.lengths[numbers]
        if not lengths.any():
            return None, np.zeros(0, np.int32)
        rows = self.added.at(_row_positions(self.starts[numbers], lengths))
        return rows, np.repeat(numbers, lengths).astype(np.int32)

    def replace(self, numbers: Int64s, lengths: Int64s, rows: pa.Table) -> None:
        """Replace the rows of these key numbers; `rows` is ordered like `numbers`."""
        self.used += len(rows) - int(self.lengths[numbers].sum())
        self.starts[numbers] = self.added.rows + np.cumsum(lengths) - lengths
        self.lengths[numbers] = lengths
        self.added.add(rows)
        if mostly_unused(self.added.rows, self.used):
            self._tidy()

    def keep(self, alive: NDArray[np.bool_]) -> None:
        """Drop the ranges of keys outside the mask `alive`, and renumber the keys."""
        self.starts, self.lengths = self.starts[alive], self.lengths[alive]
        self.used = int(self.lengths.sum())
        self._tidy()

    def changed(self, change: Callable[[pa.Table], pa.Table]) -> RowRanges:
        """Return the same ranges, with each table of rows converted by `change`."""
        pieces = [Slice(change(piece.table)) for piece in self.added.pieces]
        return RowRanges(GrowingRows(pieces, self.added.rows), self.starts, self.lengths, self.used)

    def _tidy(self) -> None:
        """Drop unused rows from `added`."""
        numbers = np.flatnonzero(self.lengths)
        numbers = numbers[np.argsort(self.starts[numbers])]
        lengths = self.lengths[numbers]
        self.added = self.added.only(_row_positions(self.starts[numbers], lengths))
        self.starts[numbers] = np.cumsum(lengths) - lengths


def by_number(numbered: Int32s, count: int) -> tuple[Int64s, Int32s, Int64s]:
    """Sort rows by key number, fast if most of the `count` keys have no rows.

    The result is that of `by_partition`.
    """
    if count <= _SPARSE * len(numbered):
        return by_partition(numbered, count)
    distinct, local = distinct_numbers(numbered)
    order, groups, heads = by_partition(local, len(distinct))
    return order, distinct[groups].astype(np.int32), heads


def _row_positions(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the positions of all rows in these ranges."""
    before = np.cumsum(lengths) - lengths
    indices: Int64s = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return indices
