"""Approximate aggregates with little memory: count-min sketch, exponential histogram (M41).

`approx_count(x)` estimates how many tuples of the window have the same x as the newest tuple. It is a
count-min sketch: each of a few hash functions has a row of counters, and each item has one counter per row.
Other items may have the same counter, so the estimate is the smallest of the item's counters. It is never too
low.

`approx_count_if(condition)` estimates the number of tuples that satisfy a condition, by an exponential
histogram (Datar, Gionis, Indyk, Motwani 2002). The tuples that satisfy the condition are 1-bits. They are
numbered by arrival, and grouped into buckets of 1, 2, 4, … 1-bits, newest first, with `PER_SIZE` or
`PER_SIZE` + 1 buckets of each size:

    1-bits     16 15 14 | 13 12 | 11 10 | 9 8 | 7 6 5 4 | 3 2 1 0      (PER_SIZE 2)

A bucket is dropped when its newest tuple has expired. Half of the oldest remaining bucket is counted. So the
error is at most half of this bucket, while there are `PER_SIZE` buckets of each smaller size. The relative
error is at most 1 / (PER_SIZE + 2). The buckets depend only on the number of 1-bits (see `buckets`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.aggregates.columns import (
    History,
    Rows,
    Windows,
    bigints,
    distinct_codes,
    first_of_each,
    sum_weights,
    valid_mask,
    weights_of,
)
from slicemill.aggregates.frames import Args
from slicemill.aggregates.hashes import GOLDEN, bits_of, column_bits, mix_bits, mix_column
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.kernels.kernel import kernel

FUNCTIONS = 4
CELLS = 2048
PER_SIZE = 10


def cells(item: object) -> list[int]:
    """Return the indexes of an item's counters in a count-min sketch, one per hash function."""
    bits = bits_of(item)
    return [mix_bits(bits ^ (function * GOLDEN)) % CELLS for function in range(FUNCTIONS)]


class ApproxCount:
    """Row-by-row approx_count: a count-min sketch of a window. The value is the newest item's count.

    The value is NULL if the newest item is NULL.
    """

    __slots__ = ("_counters", "_newest")

    def __init__(self) -> None:
        self._counters: list[dict[int, int]] = [{} for _ in range(FUNCTIONS)]
        self._newest: object = None

    def add(self, args: Args) -> None:
        self._newest = args[0]
        self._change(args[0], 1)

    def remove(self, args: Args) -> None:
        self._change(args[0], -1)

    def value(self) -> object:
        if self._newest is None:
            return None
        indices = cells(self._newest)
        return min(counters[index] for counters, index in zip(self._counters, indices, strict=True))

    def state(self) -> object:
        return self._counters, self._newest

    def restore(self, state: Any) -> None:
        self._counters, self._newest = state

    def _change(self, item: object, copies: int) -> None:
        if item is not None:
            for counters, cell in zip(self._counters, cells(item), strict=True):
                counters[cell] = counters.get(cell, 0) + copies


def buckets(ones: int) -> Iterator[tuple[int, int]]:
    """Yield the sizes of an exponential histogram's buckets and the number of buckets of each size.

    The smallest and newest buckets come first. Two buckets of a size are merged into one of the next size.

    >>> list(buckets(12)), list(buckets(13))
    ([(1, 10), (2, 1)], [(1, 11), (2, 1)])
    """
    size = 1
    while ones:
        merged = max(0, (ones - PER_SIZE) // 2) if ones > PER_SIZE + 1 else 0
        yield size, ones - 2 * merged
        size, ones = 2 * size, merged


def estimate_ones(arrived: int, left: int) -> int:
    """Estimate how many counted tuples are in the window, if `arrived` have arrived and `left` have expired.

    Counted tuples are those that satisfy the condition of approx_count_if. The estimate is exact until the
    first counted tuple expires.
    """
    if not left:
        return arrived
    total = oldest = 0
    newest = arrived  # number of the newest tuple in the next bucket
    for size, count in buckets(arrived):
        alive = min(count, max(0, -(-(newest - left) // size)))
        if alive:
            total, oldest = total + alive * size, size
        newest -= count * size
    return total - oldest // 2


class ApproxCountIf:
    """Row-by-row approx_count_if, from the numbers of counted tuples that have arrived and expired.

    The two numbers determine the buckets of the exponential histogram.
    """

    __slots__ = ("_arrived", "_left")

    def __init__(self) -> None:
        self._arrived = self._left = 0

    def add(self, args: Args) -> None:
        self._arrived += args[0] is True

    def remove(self, args: Args) -> None:
        self._left += args[0] is True

    def value(self) -> object:
        return estimate_ones(self._arrived, self._left)

    def state(self) -> object:
        return self._arrived, self._left

    def restore(self, state: Any) -> None:
        self._arrived, self._left = state


# -- columnar implementation -------------------------------------------------------------------------------


@kernel
def _copies_of_last(
    cells: Int64s, weights: Int64s, counted: Bools, starts: Int64s, ends: Int64s, least: Int64s
) -> None:
    """Update each window's estimate for its last item by one hash function of a count-min sketch.

    `cells` has the counter index of each row's item. `least` has the smallest counter so far of each window's
    last item, and is lowered to the counter of this hash function.
    """
    counters = np.zeros(cells.max() + 1 if len(cells) else 0, np.int64)
    start = end = 0
    for i in range(len(starts)):
        while end < ends[i]:
            if counted[end]:
                counters[cells[end]] += weights[end]
            end += 1
        while start < starts[i]:
            if counted[start]:
                counters[cells[start]] -= weights[start]
            start += 1
        if end > start:
            least[i] = min(least[i], counters[cells[end - 1]])


@dataclass(frozen=True, slots=True)
class ColumnApproxCount:
    """Columnar implementation of approx_count."""

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        items = rows.arguments[0]
        counted, bits = valid_mask(items), column_bits(items)
        least = np.full(len(windows), np.iinfo(np.int64).max)
        for function in range(FUNCTIONS):
            salt = np.uint64(function * GOLDEN % 2**64)
            cells = (mix_column(bits ^ salt) % np.uint64(CELLS)).astype(np.int64)
            _copies_of_last(cells, weights_of(rows), counted, windows.starts, windows.ends, least)
        full = windows.ends > windows.starts
        newest = np.where(full, windows.ends - 1, 0)
        return bigints(least, full & (counted[newest] if len(counted) else False))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        codes, counted = distinct_codes(rows.arguments[0])
        indices, group = first_of_each(rows.partitions, codes, counted)
        return History(indices, sum_weights(weights_of(rows)[counted], group, len(indices)))


@dataclass(frozen=True, slots=True)
class ColumnApproxCountIf:
    """Columnar implementation of approx_count_if.

    It uses the running count of rows that satisfy the condition (`Rows.ones`).
    """

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        assert rows.ones is not None
        one = is_one(rows.arguments[0])
        full = windows.ends > windows.starts
        if not len(rows):
            return bigints(np.zeros(len(windows), np.int64))
        first, last = np.where(full, windows.starts, 0), np.where(full, windows.ends - 1, 0)
        arrived, left = rows.ones[last], rows.ones[first] - one[first]
        pairs, inverse = np.unique(np.stack([arrived, left]), axis=1, return_inverse=True)
        estimates = [estimate_ones(int(count), int(expired)) for count, expired in pairs.T]
        return bigints(np.where(full, np.array(estimates, np.int64)[inverse], 0))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        return History(partitions.starts)  # only the first tuple, because no tuple expires


def is_one(array: pa.Array) -> Bools:
    """Return a mask of the tuples that approx_count_if counts."""
    mask: Bools = valid_mask(array) & numbers(array)
    return mask
