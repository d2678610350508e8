"""How long the dispatcher waits: not at all if a source can be read, for an answer if its worker is busy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slicemill.runtime.assignments import Assignments
from slicemill.runtime.backpressure import POLL_S, PollTimer
from slicemill.runtime.messages import Forget
from slicemill.runtime.workers.events import WorkerJoined


class TwoWorkers:
    """A pool that only takes messages."""

    resident = True

    def __init__(self) -> None:
        self.sent: list[int] = []

    def members(self) -> list[WorkerJoined]:
        return [WorkerJoined(worker, 0, "here", worker) for worker in range(2)]

    def send(self, worker: int, message: object) -> None:
        self.sent.append(worker)


def stream(worker: int | None, next_read_us: int) -> Any:
    loaded = None if worker is None else (worker, 0)
    return SimpleNamespace(loaded=loaded, next_read_us=next_read_us, reading_us=None, ended=False)


@pytest.fixture
def assignments(tmp_path: Path) -> Assignments:
    """The first of two workers is busy."""
    pool: Any = TwoWorkers()
    found = Assignments(pool, "mill", tmp_path, sync=False)
    found.send({0: [Forget("mill")]}, {})
    assert found.idle == [1]
    return found


@pytest.mark.parametrize(
    ("worker", "due_us", "waits_s"),
    [(0, 0, POLL_S), (1, 0, 0.0), (None, 0, 0.0), (7, 0, 0.0), (1, 1_020_000, 0.02), (0, 1_020_000, POLL_S)],
)
def test_a_source_of_a_busy_worker_is_looked_at_when_it_answers(
    assignments: Assignments, worker: int | None, due_us: int, waits_s: float
) -> None:
    """Else the dispatcher would ask again and again, and take a core for as long as the worker runs."""
    readable = assignments.readable([stream(worker, due_us)])
    assert PollTimer().patience_s(readable, 1_000_000) == pytest.approx(waits_s)
