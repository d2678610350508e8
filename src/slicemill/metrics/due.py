"""The times at which results were due: response time counts from there.

A result that a tuple causes is due when that tuple arrives: `_arr`. A result that *time* releases (the end of
a window or slot, a tuple that leaves its window) is not due when its newest tuple arrives, but when time gets
there: when the first tuple at or behind the release time arrives on a stream that it comes from, or the clock
brings that stream's watermark there. Such a row has no arrival. Its `_arr` says until when, in the time of
the stream, it had to wait:

    _arr > 0     the tuple that caused the row arrived then
    _arr = 0     time released it, at its own `_ts`
    _arr < 0     time released it, at `-_arr`: behind its `_ts`

    window ends at 60       tuples   57      59      64
    result at 60            arrive   57.2    59.1    64.3       due at 64.3, not at 59.1

A SLACK is a delay that the user asked for: a tuple that it holds back arrives when the slack is over, and the
time of a stream is its greatest timestamp less the slack (`Intake`). What a union or a join holds back counts
from its own arrival: holding it back is part of the response. Before results are stored, they get the moments
at which they were due as arrivals (`dated`), so that what is made of them later counts from there.

A declared stream knows when its time got where (`TimeLine`), from all its tuples, also those that nobody
wants and that no log has. So when a result was due depends neither on how tuples were cut into runs nor on
how many units they passed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.storage.arrow_schema import ARRIVAL, TS
from slicemill.time import EARLIEST

Integers = NDArray[np.int64]
# When the rows of an output were due, and how many of them at each moment.
Arrivals: TypeAlias = tuple[tuple[int, int], ...]

# Above so many moments, older ones are told less exactly.
_MOST_MOMENTS = 4_096


class TimeMoments(NamedTuple):
    """When a stream's time got to some timestamps, which rise; in between with the clock, or at once."""

    ts: Integers
    at_us: Integers
    by_clock: NDArray[np.bool_]

    def reached(self, ts: Integers) -> Integers:
        """When time got to each of these; never (the greatest number) where it has not."""
        never = np.iinfo(np.int64).max
        # What arrived earlier may have been told later.
        earliest = np.append(np.minimum.accumulate(self.at_us[::-1])[::-1], never)
        place = np.searchsorted(self.ts, ts, side="left")
        found = earliest[place]
        last = np.minimum(place, max(len(self.ts) - 1, 0))
        clocked = np.flatnonzero((place < len(self.ts)) & self.by_clock[last]) if len(self.ts) else place[:0]
        if len(clocked):
            here = place[clocked]
            moment = self.at_us[here] - (self.ts[here] - ts[clocked])
            found[clocked] = np.minimum(moment, earliest[here + 1])
        return found


class TimeLine:
    """When a declared stream's time got where, as far back as anybody may ask.

    With `allowed_us` silence moves it too: the clock brings it to the last timestamp, as much later as time
    has passed since, less that (SKEW).
    """

    __slots__ = ("_allowed_us", "_at_us", "_by_clock", "_last", "_ts")

    def __init__(self, allowed_us: int | None = None) -> None:
        self._allowed_us = allowed_us
        self._last: tuple[int, int] | None = None  # the last timestamp that came, and when
        self._ts: list[int] = []
        self._at_us: list[int] = []
        self._by_clock: list[bool] = []

    def arrived(self, ts: int, at_us: int) -> None:
        """A tuple with this timestamp has arrived, or the stream has ended (END)."""
        if self._allowed_us is not None and self._last is not None:
            last_ts, last_us = self._last
            self.passed(last_ts + at_us - last_us - self._allowed_us, at_us)
        self._last = ts, at_us
        if not self._ts or ts > self._ts[-1]:
            self._add(ts, at_us, by_clock=False)

    def passed(self, ts: int, at_us: int) -> None:
        """The clock has brought time here."""
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
        """The moments of later timestamps than this."""
        first = bisect_right(self._ts, ts)
        return TimeMoments(
            np.array(self._ts[first:], np.int64),
            np.array(self._at_us[first:], np.int64),
            np.array(self._by_clock[first:], np.bool_),
        )


def released_by_time(at: Integers) -> Integers:
    """`_arr` of rows that time releases at these moments of the stream."""
    # Before 1970 a moment would look like an arrival: the row's own timestamp must do.
    return np.where(at > 0, -at, 0)


def due_moments(ts: Integers, arr: Integers, lines: Iterable[TimeMoments], now_us: int) -> Integers:
    """When results were due, by the clock that arrivals are stamped with.

    `ts` and `arr` are those of the results, `lines` are of the streams that they come from. Where none of
    these tells, as after a restart, results were due now. So were those that hold before the first tuple.
    """
    released = arr <= 0
    at = np.where(arr < 0, -arr, ts)
    due = np.full(len(ts), now_us, np.int64)
    for moments in lines:
        np.minimum(due, moments.reached(at), out=due)
    due[at == EARLIEST] = now_us
    return np.where(released, due, arr)


def dated(table: pa.Table, lines: Iterable[TimeMoments], now_us: int) -> pa.Table:
    """The results of a run, with the moments at which they were due as arrivals."""
    ts, arr = (table.column(name).to_numpy() for name in (TS, ARRIVAL))
    if not (arr <= 0).any():
        return table
    index = table.schema.get_field_index(ARRIVAL)
    moments = pa.array(due_moments(ts, arr, lines, now_us))
    return table.set_column(index, table.schema.field(index), moments)


def moments_of(ts: Integers, arrivals: Integers) -> list[tuple[int, int]]:
    """When time got where by tuples in arrival order: the greatest timestamp so far at each arrival.

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
