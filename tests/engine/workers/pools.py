"""Driving a pool from a test: wait for events on conditions, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slicemill.runtime.workers.events import Event, Notice, WorkerAnswer, WorkerJoined, WorkerLeft
from slicemill.runtime.workers.jobs import JobPool
from slicemill.runtime.workers.pool import WorkerPool

# Nothing takes so long: a test that waits for more than this has failed.
PATIENCE_S = 60.0


@dataclass(slots=True)
class Driver:
    """A pool with all events that it has given so far."""

    pool: WorkerPool | JobPool
    events: list[Event] = field(default_factory=list)
    joined: dict[int, WorkerJoined] = field(default_factory=dict)

    def until(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < end, self.events[-10:]
            self.step(1.0)

    def step(self, timeout_s: float | None) -> list[Event]:
        events = self.pool.wait(timeout_s)
        for event in events:
            if isinstance(event, WorkerJoined):
                assert event.worker not in self.joined, "it had joined already"
                self.joined[event.worker] = event
            elif isinstance(event, WorkerLeft) and event.incarnation >= 0:
                gone = self.joined.pop(event.worker, None)
                assert gone is None or gone.incarnation == event.incarnation
        self.events += events
        return events

    def all_joined(self, count: int = 2) -> None:
        self.until(lambda: len(self.joined) == count)

    def there(self, worker: int = 0) -> WorkerJoined:
        self.until(lambda: worker in self.joined)
        return self.joined[worker]

    def ask(self, worker: int, *message: Any) -> Any:
        """Send a message and return what is answered."""
        before = len(self.events)
        self.pool.send(worker, message)
        return self.answer(worker, before)

    def answer(self, worker: int, after: int) -> Any:
        def answers() -> Iterable[WorkerAnswer]:
            later = self.events[after:]
            return [event for event in later if isinstance(event, WorkerAnswer) and event.worker == worker]

        self.until(lambda: bool(answers()) or worker not in self.joined)
        (answer,) = answers()
        return answer.message

    def lefts(self, worker: int = 0) -> list[WorkerLeft]:
        return [event for event in self.events if isinstance(event, WorkerLeft) and event.worker == worker]

    def notices(self) -> list[object]:
        return [event.payload for event in self.events if isinstance(event, Notice)]


@contextmanager
def driving(pool: WorkerPool | JobPool, count: int = 2) -> Iterator[Driver]:
    """A pool that has started and all of whose workers are there; it is stopped at the end."""
    driver = Driver(pool)
    pool.start()
    try:
        driver.all_joined(count)
        yield driver
    finally:
        pool.stop()
