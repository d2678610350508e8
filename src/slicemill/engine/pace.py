"""Pace: how long tuples gather before sources are read again.

While little comes, reads of a trickle wait until they are worth what follows from them: a quarter of a core
is spent, unless service levels ask for more. A source that is behind is read on at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from slicemill.engine.streams import RunningStream
from slicemill.time import US

# Of one core, what is spent on a trickle: between two reads passes the cost of all that follows from one,
# over this. What is cheap need not wait so long: the first milliseconds are let off. Nor does it take longer
# than a part of what the strictest service level allows.
_PACE = 0.25
_LET_OFF_S = 0.01
_LONGEST_PAUSE_S = 0.1
_PART_OF_LEVEL = 0.25
POLL_S = 0.05


class ReadingPace:
    """`spend` is told what workers take; the dispatcher's own time is that of the thread that calls."""

    def __init__(self) -> None:
        self._cost_s = 0.001  # of reading once and of all that follows from it
        self._spent_s = 0.0  # since the last reads, by workers
        self._thread_s = 0.0  # this thread's processor time at the last reads
        self._next_s = 0.0

    def spend(self, cpu_s: float) -> None:
        self._spent_s += cpu_s

    @property
    def is_time(self) -> bool:
        return time.monotonic() >= self._next_s

    def have_read(self, streams: Iterable[RunningStream], strictest_s: float) -> None:
        """Sources were asked; the next time is when enough may have gathered."""
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
        """How long nothing has to be looked at, unless something comes."""
        moments = [
            stream.next_read_us
            for stream in streams
            if stream.next_read_us is not None and stream.reading_us is None and not stream.ended
        ]
        soonest = min(((moment - now_us) / US for moment in moments), default=POLL_S)
        return min(max(soonest, self._next_s - time.monotonic(), 0.0), POLL_S)
