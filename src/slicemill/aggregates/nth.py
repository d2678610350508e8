"""Aggregate nth_value: the value of the n-th oldest tuple in a window, possibly NULL."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from slicemill.aggregates.columns import History, Rows, Windows
from slicemill.aggregates.frames import Args


class NthValue:
    """Row-by-row nth_value: the value of the n-th oldest tuple. n is the second argument, by default 1."""

    __slots__ = ("_n", "_values")

    def __init__(self) -> None:
        self._n = 1
        self._values: deque[object] = deque()

    def add(self, args: Args) -> None:
        if len(args) > 1:
            self._n = cast(int, args[1])
        self._values.append(args[0])

    def remove(self, args: Args) -> None:  # noqa: ARG002 - the oldest tuple
        self._values.popleft()

    def value(self) -> object:
        return self._values[self._n - 1] if len(self._values) >= self._n else None

    def state(self) -> object:
        return self._n, self._values

    def restore(self, state: Any) -> None:
        self._n, self._values = state


@dataclass(frozen=True, slots=True)
class ColumnNthValue:
    """Columnar implementation of nth_value: the row at an offset from the window's start."""

    n: int

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        # The comparison precedes the addition, because n may be the largest integer.
        missing = windows.ends - windows.starts < self.n
        indices = np.where(missing, 0, windows.starts + (min(self.n, len(rows.arguments[0]) + 1) - 1))
        return rows.arguments[0].take(pa.array(indices, mask=missing))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        """Return the first n rows of each partition, which later results under UNBOUNDED PRECEDING need."""
        counts = np.minimum(partitions.ends - partitions.starts, self.n)
        before = np.repeat(partitions.starts - np.cumsum(counts) + counts, counts)
        return History(before + np.arange(len(before)))
