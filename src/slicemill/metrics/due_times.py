"""Due times: the times at which results were due, from which response times are measured.

A result that a tuple causes is due when that tuple arrives: `_arr`. A result that *time* triggers (the end of
a window or slot, the expiry of a tuple) is due when the watermark reaches its trigger time, and not when its
newest tuple arrives. The watermark advances when a tuple with that timestamp or a later one arrives in one of
its streams, or by the clock. A row that time triggers has no arrival time. Its `_arr` encodes the trigger
time, as a timestamp of the stream:

    _arr > 0     the tuple that caused the row arrived then
    _arr = 0     triggered by time, at its own `_ts`
    _arr < 0     triggered by time, at `-_arr`, after its `_ts`

    window ends at 60       tuples   57      59      64
    result at 60            arrive   57.2    59.1    64.3       due at 64.3, not at 59.1

SLACK is a delay that the user requested. So a tuple held back by SLACK counts as arrived when the slack is
over, and the watermark of a stream is its greatest timestamp minus the slack (`Intake`). A row that a union
or a join holds back counts from its own arrival, because this delay is part of the response time. Before
results are stored, their due times replace `_arr` (`set_due_times`), so that results derived from them count
from there.

A declared stream records when its watermark reached each timestamp (`TimeLine`). The record covers all
tuples, including those that no query reads and no log contains. So due times depend neither on how tuples
were split into runs nor on the number of tasks through which they passed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import ARRIVAL, TS
from slicemill.kernels.arrays import Int64s
from slicemill.time import EARLIEST

# Due times of an output's rows, as pairs of a due time and a number of rows.
Arrivals: TypeAlias = tuple[tuple[int, int], ...]

# Maximum number of entries in a watermark history.
# If there are more entries, every second entry of the older half is deleted.
_MOST_MOMENTS = 4_096


class TimeMoments(NamedTuple):
    """History of a stream's watermark: timestamps, and the times at which the watermark reached them.

    `by_clock` marks timestamps up to which the watermark advanced continuously, with the clock. At other
    timestamps it jumped.
    """

    ts: Int64s
    at_us: Int64s
    by_clock: NDArray[np.bool_]

    def reached(self, ts: Int64s) -> Int64s:
        """Map each timestamp to the time at which the watermark reached it.

        The largest integer means that the watermark has not reached the timestamp.
        """
        never = np.iinfo(np.int64).max
        # A later entry of the history may have an earlier arrival time.
        earliest = np.append(np.minimum.accumulate(self.at_us[::-1])[::-1], never)
        index = np.searchsorted(self.ts, ts, side="left")
        found = earliest[index]
        last = np.minimum(index, max(len(self.ts) - 1, 0))
        clocked = np.flatnonzero((index < len(self.ts)) & self.by_clock[last]) if len(self.ts) else index[:0]
        if len(clocked):
            here = index[clocked]
            moment = self.at_us[here] - (self.ts[here] - ts[clocked])
            found[clocked] = np.minimum(moment, earliest[here + 1])
        return found


class TimeLine:
    """Recorder of the watermark history of a declared stream.

    If `allowed_us` (SKEW) is given, the watermark also advances while no tuples arrive. It is then the last
    timestamp plus the time since its arrival, minus `allowed_us`.
    """

    __slots__ = ("_allowed_us", "_at_us", "_by_clock", "_last", "_ts")

    def __init__(self, allowed_us: int | None = None) -> None:
        self._allowed_us = allowed_us
        self._last: tuple[int, int] | None = None  # last timestamp of the stream, and its arrival time
        self._ts: list[int] = []
        self._at_us: list[int] = []
        self._by_clock: list[bool] = []

    def arrived(self, ts: int, at_us: int) -> None:
        """Record the arrival of a tuple with timestamp `ts`, or the end of the stream (END)."""
        if self._allowed_us is not None and self._last is not None:
            last_ts, last_us = self._last
            self.passed(last_ts + at_us - last_us - self._allowed_us, at_us)
        self._last = ts, at_us
        if not self._ts or ts > self._ts[-1]:
            self._add(ts, at_us, by_clock=False)

    def passed(self, ts: int, at_us: int) -> None:
        """Record that the clock, not a tuple, has advanced the watermark to timestamp `ts`."""
        if self._ts and ts <= self._ts[-1]:
            return
        if self._by_clock and self._by_clock[-1] and at_us - ts == self._at_us[-1] - self._ts[-1]:
            self._ts[-1], self._at_us[-1] = ts, at_us
        else:
            self._add(ts, at_us, by_clock=True)

    def _add(self, ts: int, at_us: int, *, by_clock: bool) -> None:
        self._ts.append(ts)
        self._at_us.append(at_us)
        self._by_clock.append(by_clock)
        if len(self._ts) > _MOST_MOMENTS:
            for column in (self._ts, self._at_us, self._by_clock):
                del column[: _MOST_MOMENTS // 2 : 2]

    def after(self, ts: int) -> TimeMoments:
        """Return the watermark history of the stream for timestamps after `ts`."""
        first = bisect_right(self._ts, ts)
        return TimeMoments(
            np.array(self._ts[first:], np.int64),
            np.array(self._at_us[first:], np.int64),
            np.array(self._by_clock[first:], np.bool_),
        )


def trigger_arrivals(at: Int64s) -> Int64s:
    """Encode trigger timestamps as `_arr`, the arrival column, for rows that time triggers."""
    # Trigger times are stored with a minus sign, but one before 1970 would look like an arrival time.
    # The value 0 then makes the row's own timestamp its trigger time.
    return np.where(at > 0, -at, 0)


def due_moments(ts: Int64s, arr: Int64s, lines: Iterable[TimeMoments], now_us: int) -> Int64s:
    """Return the time at which each result row was due.

    `ts` and `arr` are columns of the results, and `lines` the histories of their streams. If no history
    covers the trigger time, for example after a restart, a result is due now. Results that exist before the
    first tuple are also due now.
    """
    released = arr <= 0
    at = np.where(arr < 0, -arr, ts)
    due = np.full(len(ts), now_us, np.int64)
    for moments in lines:
        np.minimum(due, moments.reached(at), out=due)
    due[at == EARLIEST] = now_us
    return np.where(released, due, arr)


def set_due_times(table: pa.Table, lines: Iterable[TimeMoments], now_us: int) -> pa.Table:
    """Replace trigger times by due times in the column `_arr` of the results of a run."""
    ts, arr = (table.column(name).to_numpy() for name in (TS, ARRIVAL))
    if not (arr <= 0).any():
        return table
    index = table.schema.get_field_index(ARRIVAL)
    moments = pa.array(due_moments(ts, arr, lines, now_us))
    return table.set_column(index, table.schema.field(index), moments)


def moments_of(ts: Int64s, arrivals: Int64s) -> list[tuple[int, int]]:
    """Return the watermarks that arriving tuples reach, each with the time at which it was reached.

    The watermark is the greatest timestamp so far. The tuples are in order of arrival.

    >>> moments_of(np.array([5, 3, 9, 9, 12]), np.array([70, 70, 70, 80, 90]))
    [(9, 70), (12, 90)]
    """
    if not len(ts):
        return []
    greatest = np.maximum.accumulate(ts)
    last = np.append(arrivals[1:] != arrivals[:-1], [True])
    greatest, arrivals = greatest[last], arrivals[last]
    rises = np.append([True], greatest[1:] > greatest[:-1])
    return list(zip(greatest[rises].tolist(), arrivals[rises].tolist(), strict=True))
