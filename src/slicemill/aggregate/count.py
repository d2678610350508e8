"""count, count(DISTINCT x) and the counters of approx_count: how often values occur in a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

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
    bigints,
    distinct_codes,
    first_of_each,
    known,
    sums_over,
    weights_of,
)
from slicemill.aggregate.hashes import GOLDEN, MIX_1, MIX_2, bits_of
from slicemill.aggregate.synopses import CELLS, FUNCTIONS, estimated_ones
from slicemill.scalar.vectors import numbers

Bits: TypeAlias = NDArray[np.uint64]


def _counted(rows: Rows) -> Mask:
    """Rows without a NULL among the arguments; without arguments, all of them."""
    counted = np.ones(len(rows), np.bool_)
    for argument in rows.arguments:
        counted &= known(argument)
    return counted


@dataclass(frozen=True, slots=True)
class Count:
    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        return bigints(sums_over(np.where(_counted(rows), weights_of(rows), 0), windows))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        counted = np.where(_counted(rows), weights_of(rows), 0)
        places, group = first_of_each(rows.partitions, np.zeros(len(rows), np.int64), counted > 0)
        return History(places, _weights(counted[counted > 0], group, len(places)))


def _weights(weights: Places, group: Places, groups: int) -> Places:
    out = np.zeros(groups, np.int64)
    np.add.at(out, group, weights)
    return out


@njit(cache=True)
def _different(codes: Places, counted: Mask, starts: Places, ends: Places) -> Places:
    copies = np.zeros(codes.max() + 1 if len(codes) else 0, np.int64)
    out = np.empty(len(starts), np.int64)
    start = end = different = 0
    for i in range(len(starts)):
        while end < ends[i]:
            if counted[end]:
                copies[codes[end]] += 1
                different += copies[codes[end]] == 1
            end += 1
        while start < starts[i]:
            if counted[start]:
                copies[codes[start]] -= 1
                different -= copies[codes[start]] == 0
            start += 1
        out[i] = different
    return out


@dataclass(frozen=True, slots=True)
class CountDistinct:
    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        codes, counted = distinct_codes(rows.arguments[0])
        return bigints(_different(codes, counted, windows.starts, windows.ends))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        return History(first_of_each(rows.partitions, *distinct_codes(rows.arguments[0]))[0])


@njit(cache=True)
def _copies_of_last(
    cells: Places, weights: Places, counted: Mask, starts: Places, ends: Places, least: Places
) -> None:
    """Lowers `least` to how many rows of each window are in the cell of its last row."""
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


def _bits(array: pa.Array) -> Bits:
    """`bits_of` each value; those of NULLs are arbitrary."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = numbers(array) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    if pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        found: Bits = numbers(array).astype(np.int64).view(np.uint64)
        return found
    encoded = array.dictionary_encode()
    of_each = np.array([bits_of(value) for value in encoded.dictionary.to_pylist()] or [0], np.uint64)
    return of_each[np.where(known(array), numbers(encoded.indices.fill_null(0)), 0)]


def _mixed(
    values: Bits,
) -> Bits:
    """SplitMix64, as the reference has it."""
    values = values + np.uint64(GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))


def priorities(arrival_numbers: Places) -> Bits:
    return _mixed(arrival_numbers.view(np.uint64))


@dataclass(frozen=True, slots=True)
class ApproxCount:
    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        items = rows.arguments[0]
        counted, bits = known(items), _bits(items)
        least = np.full(len(windows), np.iinfo(np.int64).max)
        for function in range(FUNCTIONS):
            salt = np.uint64(function * GOLDEN % 2**64)
            cells = (_mixed(bits ^ salt) % np.uint64(CELLS)).astype(np.int64)
            _copies_of_last(cells, weights_of(rows), counted, windows.starts, windows.ends, least)
        full = windows.ends > windows.starts
        newest = np.where(full, windows.ends - 1, 0)
        return bigints(least, full & (counted[newest] if len(counted) else False))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        codes, counted = distinct_codes(rows.arguments[0])
        places, group = first_of_each(rows.partitions, codes, counted)
        return History(places, _weights(weights_of(rows)[counted], group, len(places)))


@dataclass(frozen=True, slots=True)
class ApproxCountIf:
    """All that decides is how many ones came and left, in the whole life of the partition."""

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        assert rows.ones is not None
        one = is_one(rows.arguments[0])
        full = windows.ends > windows.starts
        if not len(rows):
            return bigints(np.zeros(len(windows), np.int64))
        first, last = np.where(full, windows.starts, 0), np.where(full, windows.ends - 1, 0)
        arrived, left = rows.ones[last], rows.ones[first] - one[first]
        pairs, inverse = np.unique(np.stack([arrived, left]), axis=1, return_inverse=True)
        found = [estimated_ones(int(came), int(went)) for came, went in pairs.T]
        return bigints(np.where(full, np.array(found, np.int64)[inverse], 0))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        return History(partitions.starts)  # the first tuple of all: none has left


def is_one(array: pa.Array) -> Mask:
    """The tuples that approx_count_if counts."""
    found: Mask = known(array) & numbers(array)
    return found
