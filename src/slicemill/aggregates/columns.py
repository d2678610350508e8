"""Columnar implementation of aggregates: inputs (sorted rows and windows as ranges) and common helpers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.keys import distinct_keys
from slicemill.functions.vectors import fixed_width, numbers, validity
from slicemill.kernels.arrays import Bools, Int64s


@dataclass(frozen=True, slots=True)
class Rows:
    """Argument columns of rows, sorted by partition and then by arrival.

    Under UNBOUNDED PRECEDING, rows of earlier batches are condensed: a row may represent `weights` equal
    rows, or all earlier rows of its partition (`summaries`). `numbers` are arrival numbers in the partition.
    `ones` is the running count of rows in the partition that satisfied the condition of approx_count_if.
    """

    partitions: NDArray[np.int32]
    arguments: Sequence[pa.Array]
    weights: Int64s | None = None
    numbers: Int64s | None = None
    ones: Int64s | None = None
    summaries: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows as ranges [start, end) of row indexes. Starts and ends never decrease."""

    starts: Int64s
    ends: Int64s

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class History:
    """Rows to store for later batches under UNBOUNDED PRECEDING, as few as later results need.

    `indices` are the indexes of the stored rows. Each other field, unless None, has a new value for these
    rows. For example, a row that stands for several equal rows has their number in `weights`.
    """

    indices: Int64s
    weights: Int64s | None = None
    texts: pa.Array | None = None
    summaries: NDArray[np.object_] | None = None


class ColumnStatistic(Protocol):
    """Columnar implementation of a built-in aggregate, for given argument types."""

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        """Return the value of each window, in the declared type."""
        ...

    def history(self, rows: Rows, partitions: Windows) -> History:
        """Return the rows of each partition that later results under UNBOUNDED PRECEDING need."""
        ...


def valid_mask(array: pa.Array) -> Bools:
    """Return a mask of the values of a column that are not NULL."""
    valid = validity(array)
    return np.ones(len(array), np.bool_) if valid is None else valid


def whole_numbers(array: pa.Array) -> Int64s:
    """Return a fixed-width Arrow column as int64."""
    integers: Int64s = np.ascontiguousarray(numbers(array)).astype(np.int64, copy=False)
    return integers


def bigints(values: Int64s, valid: Bools | None = None) -> pa.Array:
    return fixed_width(values, valid, pa.int64())


def doubles(values: NDArray[np.float64], valid: Bools | None) -> pa.Array:
    return fixed_width(values, None if valid is None or valid.all() else valid, pa.float64())


def weights_of(rows: Rows) -> Int64s:
    return np.ones(len(rows), np.int64) if rows.weights is None else rows.weights


def sums_over(values: Int64s, windows: Windows) -> Int64s:
    """Return the sum of integers over each window. The sums must fit into 64 bits."""
    total: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    sums: Int64s = total[windows.ends] - total[windows.starts]
    return sums


def distinct_codes(array: pa.Array) -> tuple[Int64s, Bools]:
    """Return a dense integer code for each distinct value of a column, and a mask of non-NULL values."""
    return distinct_keys([array], len(array)).codes, valid_mask(array)


def first_of_each(partitions: NDArray[np.int32], codes: Int64s, counted: Bools) -> tuple[Int64s, Int64s]:
    """Return the index of the first row of each distinct (partition, code), in row order.

    Only rows in the mask `counted` are considered. Also return, for each of these rows, the index of its
    (partition, code) in the result.
    """
    indices = np.flatnonzero(counted)
    if not len(indices):
        return indices, indices
    pairs = partitions[indices].astype(np.int64) * (int(codes.max()) + 1) + codes[indices]
    _, first, group = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return indices[first[order]], rank[group]


def sum_weights(weights: Int64s, group: Int64s, groups: int) -> Int64s:
    """Return the sum of row weights for each group. `group` has the group of each row."""
    out = np.zeros(groups, np.int64)
    np.add.at(out, group, weights)
    return out
