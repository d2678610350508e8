"""Aggregates count and count(DISTINCT x), with a row-by-row and a columnar implementation."""

from __future__ import annotations

from collections import Counter
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
    sums_over,
    valid_mask,
    weights_of,
)
from slicemill.aggregates.definition import comparable
from slicemill.aggregates.frames import Args
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.kernels.kernel import kernel


class Count:
    """Row-by-row count: number of tuples without a NULL argument. count(*) counts all tuples."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, args: Args) -> None:
        self._count += None not in args

    def remove(self, args: Args) -> None:
        self._count -= None not in args

    def value(self) -> object:
        return self._count

    def state(self) -> object:
        return self._count

    def restore(self, state: Any) -> None:
        self._count = state


class CountDistinct:
    """Row-by-row count(DISTINCT x): number of distinct argument tuples without NULL. NaN equals NaN."""

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        self._copies: Counter[Args] = Counter()

    def add(self, args: Args) -> None:
        if None not in args:
            self._copies[comparable(args)] += 1

    def remove(self, args: Args) -> None:
        if None not in args:
            key = comparable(args)
            self._copies[key] -= 1
            if not self._copies[key]:
                del self._copies[key]

    def value(self) -> object:
        return len(self._copies)

    def state(self) -> object:
        return self._copies

    def restore(self, state: Any) -> None:
        self._copies = state


# -- columnar implementation -------------------------------------------------------------------------------


def _non_null_mask(rows: Rows) -> Bools:
    """Return a mask of the rows without a NULL argument, which count(x, …) counts."""
    counted = np.ones(len(rows), np.bool_)
    for argument in rows.arguments:
        counted &= valid_mask(argument)
    return counted


@dataclass(frozen=True, slots=True)
class ColumnCount:
    """Columnar implementation of count."""

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        if rows.weights is None and not any(argument.null_count for argument in rows.arguments):
            return bigints(windows.ends - windows.starts)
        return bigints(sums_over(np.where(_non_null_mask(rows), weights_of(rows), 0), windows))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        counted = np.where(_non_null_mask(rows), weights_of(rows), 0)
        indices, group = first_of_each(rows.partitions, np.zeros(len(rows), np.int64), counted > 0)
        return History(indices, sum_weights(counted[counted > 0], group, len(indices)))


@kernel
def _different(codes: Int64s, counted: Bools, starts: Int64s, ends: Int64s) -> Int64s:
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
class ColumnCountDistinct:
    """Columnar implementation of count(DISTINCT x)."""

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        codes, counted = distinct_codes(rows.arguments[0])
        return bigints(_different(codes, counted, windows.starts, windows.ends))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        return History(first_of_each(rows.partitions, *distinct_codes(rows.arguments[0]))[0])
