"""Back-pressure: how long rows may accumulate before sources are polled again.

While few rows arrive, polls are delayed, so that polls and the resulting runs use at most a quarter of a
core. A strict service level shortens the delay. A source that has more rows available is read again at
once. A stream whose readers have too many pending rows is not polled (`RunningStream.wants_read`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from slicemill.time import SECOND_US

if TYPE_CHECKING:
    from slicemill.runtime.streams import RunningStream

# Share of a CPU core that polls of sources, and the runs after them, may use while few rows arrive.
# The interval between two polls is the processor time of a poll and its runs, divided by _PACE. The interval
# is shortened by _LET_OFF_S seconds, so that cheap polls are not delayed.
# The interval is at most _PART_OF_LEVEL times the strictest bound on the response time of a query.
_PACE = 0.25
_LET_OFF_S = 0.01
_LONGEST_PAUSE_S = 0.1
_PART_OF_LEVEL = 0.25
POLL_S = 0.05


class PollTimer:
    """Timer that delays polls of sources according to the processor time of earlier polls.

    `spend` adds processor time of workers. The driver's part is the processor time of the calling thread.
    """

    def __init__(self) -> None:
        self._cost_s = 0.001  # processor time of a poll and of the runs after it
        self._spent_s = 0.0  # processor time of workers since the last poll
        self._thread_s = 0.0  # processor time of this thread until the last poll
        self._next_s = 0.0

    def spend(self, cpu_s: float) -> None:
        self._spent_s += cpu_s

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next_s

    def record_poll(self, streams: Iterable[RunningStream], strictest_s: float) -> None:
        """Record a poll of the sources, and schedule the next poll."""
        pause_s = 0.0
        if not any(stream.catching_up for stream in streams):
            thread_s = time.thread_time()
            spent_s, self._spent_s = self._spent_s + thread_s - self._thread_s, 0.0
            self._thread_s = thread_s
            self._cost_s += 0.2 * (spent_s - self._cost_s)
            allowed_s = min(_LONGEST_PAUSE_S, _PART_OF_LEVEL * strictest_s)
            pause_s = min(max(self._cost_s / _PACE - _LET_OFF_S, 0.0), allowed_s)
        self._next_s = time.monotonic() + pause_s

    def patience_s(self, streams: Iterable[RunningStream], now_us: int) -> float:
        """Return the time until the next poll of a source is due."""
        moments = [
            stream.next_read_us
            for stream in streams
            if stream.next_read_us is not None and stream.reading_us is None and not stream.ended
        ]
        soonest = min(((moment - now_us) / SECOND_US for moment in moments), default=POLL_S)
        return min(max(soonest, self._next_s - time.monotonic(), 0.0), POLL_S)
