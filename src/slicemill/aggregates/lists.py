"""Aggregates that return lists or joined strings: collect_list, array_agg, collect_set, listagg, string_agg.

The values of a window are in arrival order. NULLs are omitted, as in Spark, so that a window without a value
has an empty list. A set has the first of several equal values. NaN equals NaN. Without a finite window, a
list has at most `LONGEST` values, because each new row emits the whole list of its group.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from slicemill.aggregates.columns import History, Rows, Windows, distinct_codes, first_of_each, valid_mask
from slicemill.aggregates.definition import comparable
from slicemill.aggregates.frames import Args
from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Int64s

# Names of the list aggregates, and the maximum length of a list without a finite window
LISTS = ("collect_list", "array_agg", "collect_set")
LONGEST = 10_000


def check_length(values: int) -> None:
    """Raise an error if a list without a finite window has too many values."""
    if values > LONGEST:
        raise SlicemillError(
            f"a list of one group has more than {LONGEST:,} values; collect them over a window, as in "
            "FROM s [RANGE 1 HOUR], or select fewer rows with WHERE, FILTER or more groups"
        )


class CollectedValues:
    """Row-by-row collect_list: all non-NULL values of a window, in arrival order."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: deque[object] = deque()

    def add(self, args: Args) -> None:
        if args[0] is not None:
            self._values.append(args[0])

    def remove(self, args: Args) -> None:
        if args[0] is not None:
            self._values.popleft()

    def value(self) -> object:
        return tuple(self._values)

    def state(self) -> object:
        return self._values

    def restore(self, state: Any) -> None:
        self._values = state


class CollectedSet:
    """Row-by-row collect_set: distinct values of a window, in the order of their first occurrence."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all = CollectedValues()

    def add(self, args: Args) -> None:
        self._all.add(args)

    def remove(self, args: Args) -> None:
        self._all.remove(args)

    def value(self) -> object:
        values = self._all.value()
        assert isinstance(values, tuple)
        different: dict[object, object] = {}
        for value in values:
            different.setdefault(comparable((value,)), value)
        return tuple(different.values())

    def state(self) -> object:
        return self._all.state()

    def restore(self, state: Any) -> None:
        self._all.restore(state)


@dataclass(frozen=True, slots=True)
class ColumnList:
    """Columnar implementation of collect_list and collect_set. The values of a window are contiguous."""

    distinct: bool = False

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        values = rows.arguments[0]
        valid = valid_mask(values)
        before: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(valid)])
        firsts = before[windows.starts]
        counts = before[windows.ends] - firsts
        # The length is limited only under UNBOUNDED PRECEDING, where rows have weights and never expire.
        if rows.weights is not None and not self.distinct:
            check_length(int(counts.max(initial=0)))
        owners = np.repeat(np.arange(len(windows)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        indices = np.flatnonzero(valid)[np.repeat(firsts, counts) + within]
        if self.distinct and len(indices):
            codes, _ = distinct_codes(values)
            _, first = np.unique(owners * (int(codes.max()) + 1) + codes[indices], return_index=True)
            first.sort()
            indices, counts = indices[first], np.bincount(owners[first], minlength=len(windows))
            if rows.weights is not None:
                check_length(int(counts.max(initial=0)))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, values.take(pa.array(indices)))

    def history(self, rows: Rows, partitions: Windows) -> History:  # noqa: ARG002
        """Return the rows to store, because their values occur in later lists under UNBOUNDED PRECEDING."""
        values = rows.arguments[0]
        if not self.distinct:
            return History(np.flatnonzero(valid_mask(values)))
        return History(first_of_each(rows.partitions, *distinct_codes(values))[0])


# listagg and string_agg: the strings of a window, concatenated in arrival order


class JoinedTexts:
    """Row-by-row listagg: concatenated strings. The separator is the constant second argument, or empty."""

    __slots__ = ("_separator", "_texts")

    def __init__(self) -> None:
        self._separator = ""
        self._texts: deque[str] = deque()

    def add(self, args: Args) -> None:
        if len(args) > 1:
            self._separator = cast(str, args[1])
        if args[0] is not None:
            self._texts.append(cast(str, args[0]))

    def remove(self, args: Args) -> None:
        if args[0] is not None:
            self._texts.popleft()

    def value(self) -> object:
        return self._separator.join(self._texts) if self._texts else None

    def state(self) -> object:
        return self._separator, self._texts

    def restore(self, state: Any) -> None:
        self._separator, self._texts = state


@dataclass(frozen=True, slots=True)
class ColumnTexts:
    """Columnar implementation of listagg, which concatenates the strings of a window.

    The strings of a window are contiguous, so each result is a slice of one long string.
    """

    separator: str

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        return pa.array(self._texts(rows, windows), pa.string())

    def history(self, rows: Rows, partitions: Windows) -> History:
        texts = self._texts(rows, partitions)
        full = np.array([text is not None for text in texts], np.bool_)
        return History(
            partitions.starts[full], texts=pa.array([t for t in texts if t is not None], pa.string())
        )

    def _texts(self, rows: Rows, windows: Windows) -> list[str | None]:
        valid = valid_mask(rows.arguments[0])
        before: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(valid)])
        texts = [text for text in rows.arguments[0].to_pylist() if text is not None]
        joined, step = self.separator.join(texts), len(self.separator)
        lengths = np.array([len(text) + step for text in texts], np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        firsts, lasts = before[windows.starts], before[windows.ends]
        begins, ends = offsets[firsts].tolist(), (offsets[lasts] - step).tolist()
        full = (lasts > firsts).tolist()
        return [joined[b:e] if some else None for b, e, some in zip(begins, ends, full, strict=True)]
