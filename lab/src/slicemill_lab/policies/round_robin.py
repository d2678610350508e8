"""Round robin RR(k): tasks in turn, up to k tuples per visit, starting with the steepest task (M13)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.charts import slope
from slicemill_lab.policies.policy import Queue, SimulatedTask


class RoundRobin:
    """Round robin. A visit ends after `quantum` tuples, or when the task has no more input."""

    __slots__ = ("_current", "_left", "_quantum")

    def __init__(self, first: int, quantum: int) -> None:
        if quantum < 1:
            raise ValueError(f"the quantum of round robin must be at least 1 tuple, not {quantum}")
        self._quantum = quantum
        self._current = first
        self._left = quantum

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        current = self._current
        task = next(
            (queue.task for queue in ready if queue.task >= current + (not self._left)), ready[0].task
        )
        if task != current or not self._left:
            self._current, self._left = task, self._quantum
        self._left -= 1
        return task


def round_robin(tasks: Sequence[SimulatedTask], quantum: int = 1) -> RoundRobin:
    """Return round robin in the order of the tasks, starting with the greatest mean slope."""
    first = max(range(len(tasks)), key=lambda task: slope(tasks[task].piece))
    return RoundRobin(first, quantum)
