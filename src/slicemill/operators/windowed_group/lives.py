"""Aggregates over rows that expire in any order, for example joined rows.

A row has a lifetime: it counts from its `time` until before its `end`. A joined tuple ends when the first
of its components leaves its window, which may be long before earlier tuples expire:

    time     0  1  2  3  4  5  6  7
    a        [-----------------)            window at 3: a b c
    b           [--------)                  window at 5: a c
    c              [--------------)

So a window is not a range of neighbouring rows. The rows of each window are copied to a contiguous range.
The work is proportional to the number of rows in all windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.aggregate.columns import Windows
from slicemill.columns.intervals import Mask, Places, by_partition
from slicemill.columns.keys import distinct_keys, whole
from slicemill.columns.pieces import kept
from slicemill.machine_code.kernel import kernel
from slicemill.operators.call_values import CallValues, Evaluate, WindowRows, aligned
from slicemill.scalar.vectors import numbers
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice

TIME, END = "time", "end"
_BEGINNING, NEVER = -(2**63), 2**63 - 1
_AT_ONCE = 1 << 20  # maximum number of rows in copied windows at a time


@stored_as("lives", version=1)
@dataclass(slots=True)
class LivesState:
    """Unexpired rows in order of arrival, and the watermark."""

    slices: list[Slice] = field(default_factory=list)
    now: int = _BEGINNING


@dataclass(frozen=True, slots=True)
class LivingRows:
    """Results of windows: ends, representative rows, and call values."""

    moments: Places
    rows: pa.Table
    values: dict[str, pa.Array]


class Lives:
    """Calls over the unexpired rows of each group.

    Calls are evaluated for each new row, or at each slide for all groups. `keys` name the columns with the
    group keys.
    """

    def __init__(
        self, evaluates: Sequence[Evaluate], keys: Sequence[str], slide: int | None, state: LivesState
    ) -> None:
        self.state = state
        self._evaluates = evaluates
        self._keys = keys
        self._slide = slide

    def run(self, new: pa.Table, now: int) -> LivingRows:
        """Process new rows in order.

        No later row has a time before `now`.
        """
        state = self.state
        now = max([state.now, now, *numbers(new.column(TIME).combine_chunks())[-1:].tolist()])
        old = [piece.table for piece in state.slices]
        rows = pa.concat_tables([*old, new]).combine_chunks()
        fresh = np.arange(len(rows)) >= len(rows) - len(new)
        found = self._each(rows, fresh) if self._slide is None else self._sliding(rows, self._slide, now)
        limit = now if self._slide is None or now == NEVER else _next(now, self._slide) - 1
        state.slices = kept(state.slices, new, _numpy(rows, END) > limit)
        state.now = now
        return found

    def due(self) -> int | None:
        """Return the end of the next non-empty window."""
        now = self.state.now
        if self._slide is None or now == NEVER:
            return None
        end: int = _next(now, self._slide)
        alive = any((_numpy(piece.table, END) >= end).any() for piece in self.state.slices)
        return end if alive else None

    def _each(self, rows: pa.Table, fresh: Mask) -> LivingRows:
        """Return results for each new row over its group, including the row."""
        order, _, head = self._sorted(rows)
        times, ends = (_numpy(rows, name)[order] for name in (TIME, END))
        asked = np.flatnonzero(fresh[order])
        parts = []
        for first, last in _blocks(asked - head[asked] + 1):
            some = asked[first:last]
            places, sizes = _alive(head, times, ends, some)
            parts.append(self._values(rows, order[places], sizes))
        # Restore the order of arrival.
        found = self._together(rows, parts)
        shown = order[asked][found.windows]
        return self._results(rows, _numpy(rows, TIME)[shown], shown, np.argsort(shown, kind="stable"), found)

    def _sliding(self, rows: pa.Table, slide: int, now: int) -> LivingRows:
        """Return results of windows that ended, by end, then by first row."""
        order, groups, _ = self._sorted(rows)
        times, ends = (_numpy(rows, name)[order] for name in (TIME, END))
        first = _next(np.maximum(times, self.state.now), slide)
        last = np.minimum(ends, now) // slide * slide
        moments, firsts, parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], []
        for low, high in _periods(first, last, slide):
            places, at = _expanded(np.maximum(first, low), np.minimum(last, high), slide)
            # Sort by end. Rows with one end stay sorted by group.
            by_end, _, _ = by_partition(((at - low) // slide).astype(np.int32), (high - low) // slide + 1)
            places, at = places[by_end], at[by_end]
            begins = np.ones(len(places), np.bool_)
            begins[1:] = (at[1:] != at[:-1]) | (groups[places[1:]] != groups[places[:-1]])
            starts = np.flatnonzero(begins)
            parts.append(self._values(rows, order[places], np.diff(starts, append=len(places))))
            moments.append(at[starts])
            firsts.append(order[places[starts]])
        found = self._together(rows, parts)
        moment, shown = np.concatenate(moments)[found.windows], np.concatenate(firsts)[found.windows]
        return self._results(rows, moment, shown, np.lexsort((shown, moment)), found)

    def _results(
        self, rows: pa.Table, moments: Places, shown: Places, order: Places, found: CallValues
    ) -> LivingRows:
        values = {name: column.take(pa.array(order)) for name, column in found.columns.items()}
        return LivingRows(moments[order], rows.take(pa.array(shown[order])), values)

    def _sorted(self, rows: pa.Table) -> tuple[Places, Places, Places]:
        """Return row positions by group and arrival, their groups, and group starts."""
        keys = distinct_keys([whole(rows.column(name)) for name in self._keys], len(rows))
        order, groups, head = by_partition(keys.codes.astype(np.int32), max(len(keys.values), 1))
        return order, groups.astype(np.int64), head

    def _values(self, rows: pa.Table, places: Places, sizes: Places) -> tuple[int, CallValues]:
        """Evaluate all calls over consecutive windows of these sizes.

        Return the number of windows and the values.
        """
        ends = np.cumsum(sizes)
        windows = Windows(ends - sizes, ends)
        taken: dict[str, pa.Array] = {}

        def column(name: str) -> pa.Array:
            if name not in taken:
                taken[name] = rows.column(name).combine_chunks().take(pa.array(places))
            return taken[name]

        side_by_side = WindowRows(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), column)
        found = [evaluate(side_by_side, windows) for evaluate in self._evaluates]
        return len(sizes), aligned(found, len(sizes))

    def _together(self, rows: pa.Table, parts: Sequence[tuple[int, CallValues]]) -> CallValues:
        """Concatenate the values of all parts, with consecutive window numbers."""
        none = np.zeros(0, np.int64)
        parts = parts or [self._values(rows, none, none)]
        before = np.cumsum([0, *(windows for windows, _ in parts)])
        counted = [first + part.windows for first, (_, part) in zip(before, parts, strict=False)]
        names = parts[0][1].columns
        columns = {name: pa.concat_arrays([part.columns[name] for _, part in parts]) for name in names}
        return CallValues(np.concatenate(counted), columns)


def _next(time: Any, slide: int) -> Any:
    """Return the first window end after a time."""
    return (time // slide + 1) * slide


def _blocks(counts: Places) -> Iterator[tuple[int, int]]:
    """Yield index ranges with a bounded total, or with one element."""
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + _AT_ONCE, side="right")))
        yield start, stop
        start = stop


def _periods(first: Places, last: Places, slide: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of window ends with a bounded number of rows.

    Both bounds are inclusive. A single end may exceed the limit.
    """
    alive = last >= first
    if not alive.any():
        return
    low, final = int(first[alive].min()), int(last[alive].max())
    while low <= final:
        high = final
        while high > low and _entries(first, last, low, high, slide) > _AT_ONCE:
            high = low + (high - low) // (2 * slide) * slide
        if _entries(first, last, low, high, slide):
            yield low, high
        low = high + slide


def _entries(first: Places, last: Places, low: int, high: int, slide: int) -> int:
    counts = (np.minimum(last, high) - np.maximum(first, low)) // slide + 1
    return int(np.maximum(counts, 0).sum())


def _expanded(first: Places, last: Places, slide: int) -> tuple[Places, Places]:
    """Repeat each row for every end at which it is alive.

    Return the row positions and the ends.
    """
    counts = np.maximum((last - first) // slide + 1, 0)
    places = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, first[places] + within * slide


@kernel
def _alive(head: Places, times: Places, ends: Places, asked: Places) -> tuple[Places, Places]:
    """Return the rows alive at the time of each asked row.

    Only rows of the same group count. The row positions for all asked rows are concatenated.
    """
    most = 0
    for i in asked:
        most += i - head[i] + 1
    places, sizes = np.empty(most, np.int64), np.empty(len(asked), np.int64)
    count = 0
    for number, i in enumerate(asked):
        before = count
        for j in range(head[i], i + 1):
            if ends[j] > times[i]:
                places[count] = j
                count += 1
        sizes[number] = count - before
    return places[:count], sizes


def _numpy(table: pa.Table, name: str) -> Places:
    found: Places = numbers(whole(table.column(name)))
    return found
