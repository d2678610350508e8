"""Bytes of state are counted as often as that is cheap beside the runs."""

from __future__ import annotations

from typing import cast

import pytest

from slicemill.runtime import worker as task
from slicemill.runtime.pipeline import TaskProgram
from slicemill.runtime.worker import LoadedSubtask


class Clock:
    """Processor time that passes while bytes are counted."""

    def __init__(self, counting_s: float) -> None:
        self.now, self.counting_s, self.counts = 0.0, counting_s, 0

    def process_time(self) -> float:
        return self.now

    def state_bytes(self) -> int:
        self.now += self.counting_s
        self.counts += 1
        return 100 * self.counts


def counts_of_runs(monkeypatch: pytest.MonkeyPatch, counting_s: float, run_s: float, every_s: float) -> int:
    """How often bytes are counted in a hundred runs."""
    clock = Clock(counting_s)
    monkeypatch.setattr(task.time, "process_time", clock.process_time)
    subtask = LoadedSubtask("plan", 0, cast(TaskProgram, clock))
    for run in range(100):
        subtask.ran_cpu_s += run_s
        subtask.count_bytes(run * every_s, at_once=False)
    assert subtask.bytes == 100 * clock.counts
    return clock.counts


def test_cheap_counts_are_made_every_half_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts_of_runs(monkeypatch, counting_s=0.0001, run_s=0.01, every_s=0.1) == 20


def test_dear_counts_are_a_twentieth_of_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts_of_runs(monkeypatch, counting_s=0.01, run_s=0.02, every_s=1.0) == 10


def test_a_task_with_little_to_do_is_counted_anyhow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts_of_runs(monkeypatch, counting_s=1.0, run_s=0.001, every_s=10.0) == 34


def test_who_has_to_drop_something_knows_the_bytes_of_every_run() -> None:
    clock = Clock(5.0)
    subtask = LoadedSubtask("plan", 0, cast(TaskProgram, clock))
    for run in range(10):
        subtask.count_bytes(run * 0.01, at_once=True)
    assert clock.counts == 10
