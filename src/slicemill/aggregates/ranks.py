"""Aggregates median, percentile and quantile (order statistics).

The row-by-row implementation stores the values in sorted order. The columnar implementation uses a Fenwick
tree over the ranks of the values, which counts the window's values up to each rank in O(log n) per tuple.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from slicemill.aggregates.columns import (
    History,
    Rows,
    Windows,
    distinct_codes,
    doubles,
    first_of_each,
    sum_weights,
    valid_mask,
    weights_of,
)
from slicemill.aggregates.frames import Args
from slicemill.aggregates.statistic import Number
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Bools, Floats, Int64s
from slicemill.kernels.kernel import kernel


class Percentile:
    """Row-by-row percentile of the values of a window, as a float.

    The percentile is interpolated between two values: the 0.25 percentile of (0, 10) is 2.5. The share is the
    constant second argument, by default 0.5 (the median). NaN is the greatest value, as in Spark.
    """

    __slots__ = ("_share", "_sorted")

    def __init__(self) -> None:
        self._share = 0.5
        self._sorted: list[tuple[bool, float]] = []

    def add(self, args: Args) -> None:
        if len(args) > 1:
            self._share = float(cast(Number, args[1]))
        if args[0] is not None:
            insort(self._sorted, self._key(args[0]))

    def remove(self, args: Args) -> None:
        if args[0] is not None:
            del self._sorted[bisect_left(self._sorted, self._key(args[0]))]

    def value(self) -> object:
        if not self._sorted:
            return None
        index = (len(self._sorted) - 1) * self._share
        below, above = math.floor(index), math.ceil(index)
        (_, lower), (_, upper) = self._sorted[below], self._sorted[above]
        if below == above or lower == upper:
            return lower
        return (above - index) * lower + (index - below) * upper

    def state(self) -> object:
        return self._share, self._sorted

    def restore(self, state: Any) -> None:
        self._share, self._sorted = state

    @staticmethod
    def _key(arg: object) -> tuple[bool, float]:
        # Adding 0.0 converts -0.0 to 0.0, so that the order of zeros does not matter.
        number = float(cast(Number, arg)) + 0.0
        return (True, math.nan) if math.isnan(number) else (False, number)


# -- columnar implementation -------------------------------------------------------------------------------


@kernel
def _find(tree: Int64s, top: int, index: int) -> int:
    """Return the rank, among all distinct values, of the value at `index` in the sorted window.

    `tree` is a Fenwick tree that counts the window's values by rank. `top` is its highest power of two.
    """
    rank = 0
    step = top
    while step:
        if rank + step < len(tree) and tree[rank + step] <= index:
            rank += step
            index -= tree[rank]
        step >>= 1
    return rank


@kernel
def _percentiles(
    values: Floats, ranks: Int64s, weights: Int64s, counted: Bools, starts: Int64s, ends: Int64s, share: float
) -> tuple[Floats, Bools]:
    tree = np.zeros(len(values) + 1, np.int64)
    top = 1
    while 2 * top < len(tree):
        top *= 2
    out, has_value = np.zeros(len(starts)), np.zeros(len(starts), np.bool_)
    start = end = count = 0
    for i in range(len(starts)):
        while end < ends[i] or start < starts[i]:
            entering = end < ends[i]
            row = end if entering else start
            if entering:
                end += 1
            else:
                start += 1
            if counted[row]:
                change = weights[row] if entering else -weights[row]
                count += change
                index = ranks[row] + 1
                while index < len(tree):
                    tree[index] += change
                    index += index & -index
        if count:
            at = (count - 1) * share
            below, above = math.floor(at), math.ceil(at)
            lower = values[_find(tree, top, below)]
            upper = lower if below == above else values[_find(tree, top, above)]
            has_value[i] = True
            out[i] = lower if lower == upper else (above - at) * lower + (at - below) * upper
            if below == above:
                out[i] = lower
    return out, has_value


def as_doubles(array: pa.Array) -> Floats:
    """Convert a numeric column to doubles without negative zero. Values of NULLs are arbitrary."""
    if pa.types.is_decimal(array.type):
        encoded = array.dictionary_encode()
        distinct = np.array([float(value) for value in encoded.dictionary.to_pylist()] or [0.0])
        return distinct[np.where(valid_mask(array), numbers(encoded.indices.fill_null(0)), 0)] + 0.0
    plain: Floats = numbers(array).astype(np.float64) + 0.0
    return plain


@dataclass(frozen=True, slots=True)
class ColumnPercentile:
    """Columnar implementation of median, percentile and quantile."""

    share: float

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        argument = rows.arguments[0]
        values, ranks = np.unique(as_doubles(argument), return_inverse=True)
        out, has_value = _percentiles(
            values, ranks, weights_of(rows), valid_mask(argument), windows.starts, windows.ends, self.share
        )
        return doubles(out, has_value)

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        codes, counted = distinct_codes(rows.arguments[0])
        indices, group = first_of_each(rows.partitions, codes, counted)
        return History(indices, sum_weights(weights_of(rows)[counted], group, len(indices)))
