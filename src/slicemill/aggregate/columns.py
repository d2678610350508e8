"""What aggregates see: sorted rows with their arguments, and windows as stretches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.keys import distinct_keys
from slicemill.scalar.vectors import fixed_width, numbers, validity

Places: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows sorted by partition, then by arrival.

    In a window that never loses a tuple, what is past is put together: a row may then stand for `weights`
    equal ones, or for all rows before (`summaries`). `numbers` are arrival numbers in the partition, `ones`
    counts the tuples that satisfied the condition, in all time.
    """

    partitions: NDArray[np.int32]
    arguments: Sequence[pa.Array]
    weights: Places | None = None
    numbers: Places | None = None
    ones: Places | None = None
    summaries: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches [start, end) of rows; neither starts nor ends ever decrease."""

    starts: Places
    ends: Places

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class History:
    """What of the rows of each partition is enough for all windows to come: some of them, perhaps changed."""

    places: Places
    weights: Places | None = None
    texts: pa.Array | None = None
    summaries: NDArray[np.object_] | None = None


class ColumnStatistic(Protocol):
    """A built-in aggregate over columns, for arguments of certain types."""

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        """The value over each window, in the declared type."""
        ...

    def history(self, rows: Rows, partitions: Windows) -> History:
        """For windows without a beginning: `partitions` are the stretches of rows of each partition."""
        ...


def known(array: pa.Array) -> Mask:
    """The rows that are not NULL."""
    valid = validity(array)
    return np.ones(len(array), np.bool_) if valid is None else valid


def whole_numbers(array: pa.Array) -> Places:
    """An Arrow column of fixed width as int64."""
    found: Places = np.ascontiguousarray(numbers(array)).astype(np.int64, copy=False)
    return found


def bigints(values: Places, valid: Mask | None = None) -> pa.Array:
    return fixed_width(values, valid, pa.int64())


def doubles(values: NDArray[np.float64], valid: Mask | None) -> pa.Array:
    return fixed_width(values, None if valid is None or valid.all() else valid, pa.float64())


def weights_of(rows: Rows) -> Places:
    return np.ones(len(rows), np.int64) if rows.weights is None else rows.weights


def sums_over(values: Places, windows: Windows) -> Places:
    """Integers summed over each window; they wrap around, so the sums must fit."""
    total: Places = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    sums: Places = total[windows.ends] - total[windows.starts]
    return sums


def distinct_codes(array: pa.Array) -> tuple[Places, Mask]:
    """A dense number for each different value, equal as DISTINCT compares, and which rows have one."""
    return distinct_keys([array], len(array)).codes, known(array)


def first_of_each(partitions: NDArray[np.int32], codes: Places, counted: Mask) -> tuple[Places, Places]:
    """The first row of each different (partition, code), in the order of rows, and the group of each row."""
    places = np.flatnonzero(counted)
    if not len(places):
        return places, places
    pairs = partitions[places].astype(np.int64) * (int(codes.max()) + 1) + codes[places]
    _, first, group = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return places[first[order]], rank[group]


def summed_weights(weights: Places, group: Places, groups: int) -> Places:
    """The weights of the rows of each group."""
    out = np.zeros(groups, np.int64)
    np.add.at(out, group, weights)
    return out
