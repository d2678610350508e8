"""Round robin with equal time slices: each task in turn, for a slice or until its queue is empty (A9)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slicemill_lab.policies.policy import Queue, SimulatedTask


class TimeSlices:
    """Round robin with time slices. The current tuple is always finished."""

    __slots__ = ("_current", "_since", "_tasks", "quantum")

    def __init__(self, tasks: int, quantum: float) -> None:
        self.quantum = quantum
        self._tasks = tasks
        self._current = 0
        self._since = -math.inf

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        if now - self._since < self.quantum and any(queue.task == self._current for queue in ready):
            return self._current
        self._current = min(
            (queue.task for queue in ready), key=lambda task: (task - self._current - 1) % self._tasks
        )
        self._since = now
        return self._current


def time_slices(tasks: Sequence[SimulatedTask], quantum: float | None = None) -> TimeSlices:
    """Return the policy. By default, a slice is the ideal time of the longest query."""
    longest = max(float(task.segment.ideal_time) for task in tasks)
    return TimeSlices(len(tasks), longest if quantum is None else quantum)
