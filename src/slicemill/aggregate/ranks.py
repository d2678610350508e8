"""median, percentile and quantile: order statistics, in O(log n) a tuple.

A Fenwick tree over the ranks of the values counts how many in the window are at or below each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from slicemill.aggregate.columns import (
    History,
    Mask,
    Places,
    Rows,
    Windows,
    distinct_codes,
    doubles,
    first_of_each,
    known,
    weights_of,
)
from slicemill.scalar.vectors import numbers

Doubles = NDArray[np.float64]


@njit(cache=True)
def _find(tree: Places, top: int, place: int) -> int:
    """The rank at which so many of the sorted values are passed."""
    rank = 0
    step = top
    while step:
        if rank + step < len(tree) and tree[rank + step] <= place:
            rank += step
            place -= tree[rank]
        step >>= 1
    return rank


@njit(cache=True)
def _percentiles(
    values: Doubles, ranks: Places, weights: Places, counted: Mask, starts: Places, ends: Places, share: float
) -> tuple[Doubles, Mask]:
    tree = np.zeros(len(values) + 1, np.int64)
    top = 1
    while 2 * top < len(tree):
        top *= 2
    out, found = np.zeros(len(starts)), np.zeros(len(starts), np.bool_)
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
                place = ranks[row] + 1
                while place < len(tree):
                    tree[place] += change
                    place += place & -place
        if count:
            at = (count - 1) * share
            below, above = math.floor(at), math.ceil(at)
            lower = values[_find(tree, top, below)]
            upper = lower if below == above else values[_find(tree, top, above)]
            found[i] = True
            out[i] = lower if lower == upper else (above - at) * lower + (at - below) * upper
            if below == above:
                out[i] = lower
    return out, found


def as_doubles(array: pa.Array) -> Doubles:
    """The numbers as doubles with one zero; those of NULLs are arbitrary."""
    if pa.types.is_decimal(array.type):
        encoded = array.dictionary_encode()
        found = np.array([float(value) for value in encoded.dictionary.to_pylist()] or [0.0])
        return found[np.where(known(array), numbers(encoded.indices.fill_null(0)), 0)] + 0.0
    plain: Doubles = numbers(array).astype(np.float64) + 0.0
    return plain


@dataclass(frozen=True, slots=True)
class Percentile:
    share: float

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        argument = rows.arguments[0]
        values, ranks = np.unique(as_doubles(argument), return_inverse=True)
        out, found = _percentiles(
            values, ranks, weights_of(rows), known(argument), windows.starts, windows.ends, self.share
        )
        return doubles(out, found)

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        codes, counted = distinct_codes(rows.arguments[0])
        places, group = first_of_each(rows.partitions, codes, counted)
        weights = np.zeros(len(places), np.int64)
        np.add.at(weights, group, weights_of(rows)[counted])
        return History(places, weights)
