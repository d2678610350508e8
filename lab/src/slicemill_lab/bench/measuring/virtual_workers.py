"""Workers in this process that run concurrently in virtual time.

A message is processed at once, but its answer is delivered when its work would be done, by a clock that only
the caller and waiting advance. The caller defines the cost of work. So the dispatcher, with balancing and
placement, can be tested with any number of workers, with the same result on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush

from slicemill.runtime.messages import ReadDone, RunDone
from slicemill.runtime.workers.events import Event, WorkerAnswer
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill_lab.on_engine import MovedClock

_US = 1_000_000
Cost = Callable[[RunDone | ReadDone], float]


class VirtualWorkers(InlinePool):
    """Pool of virtual workers. `cost` returns the seconds of a run or read; `clock` is the mill's clock."""

    def __init__(self, workers: int, clock: MovedClock, cost: Cost) -> None:
        super().__init__(workers, HANDLER)
        self._clock = clock
        self._cost = cost
        self._free_us: dict[int, int] = {}
        self._later: list[tuple[int, int, Event]] = []
        self._sent = 0

    @property
    def next_us(self) -> int | None:
        """Time of the next answer, or None."""
        return self._later[0][0] if self._later else None

    def answered(self, answer: WorkerAnswer, message: object) -> WorkerAnswer | None:  # noqa: ARG002
        """Hold the answer until the virtual time at which the worker has done its work."""
        worker = answer.worker
        took_s, told = 0.0, answer.message
        if isinstance(told, tuple):
            reply: list[object] = []
            for done in told:
                if isinstance(done, RunDone | ReadDone):
                    seconds = self._cost(done)
                    took_s += seconds
                    reply.append(replace(done, cpu_s=seconds, seconds={"work": seconds}))
                else:
                    reply.append(done)
            told = tuple(reply)
        begin = max(self._clock(), self._free_us.get(worker, 0))
        self._free_us[worker] = begin + round(took_s * _US)
        self._sent += 1
        heappush(self._later, (self._free_us[worker], self._sent, replace(answer, message=told)))
        return None

    def wait(self, timeout_s: float | None) -> list[Event]:
        """What has come by now; who has time to wait gets the next answer, when it is there."""
        found = [self._events.popleft() for _ in range(len(self._events))]
        if timeout_s and self._later and not found:
            self._clock.now = max(self._clock.now, self._later[0][0])
        while self._later and self._later[0][0] <= self._clock():
            found.append(heappop(self._later)[2])
        return found
