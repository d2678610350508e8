"""Interface of scheduling policies: choose which task with pending input runs next.

A chooser is created for a list of tasks (see the registry) and may keep state, so each run needs a new one.
The module `asked` adapts the product's policies. The other policies exist for simulators only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slicemill.kernels.arrays import Floats
from slicemill_lab.charts.charts import Piece
from slicemill_lab.charts.segments import SegmentFigures

LEAST_WAIT = 1e-9
"""Wait of a tuple that has just arrived.

It is not 0, so that the other factors of its priority count (A12).
"""


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """A schedulable task with its mean figures, as known in advance."""

    name: str
    piece: Piece
    """Line of the task in the chart of the objective, per tuple at its head."""
    segment: SegmentFigures
    """Segment from the task to the root of its query."""
    weight: float = 1.0
    """Weight of its query, at most 1 (P33)."""


class Queue(Protocol):
    """Pending input of one task at a scheduling point."""

    @property
    def task(self) -> int:
        """Position of the task in the list for which the policy was created."""
        ...

    @property
    def arrival(self) -> float:
        """Time when the head tuple entered the system."""
        ...

    @property
    def head_slope(self) -> float:
        """Drop of the head tuple over its time: the first of `drops` over the first of `times`."""
        ...

    @property
    def times(self) -> Floats:
        """True processing time of each pending tuple, oldest first.

        Simulators know it, others estimate it.
        """
        ...

    @property
    def drops(self) -> Floats:
        """Amount by which each pending tuple will lower the chart."""
        ...

    def __len__(self) -> int: ...


class TupleChooser(Protocol):
    """Chooses a task. At least one queue is ready."""

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        """Return the `task` of one of the non-empty queues, which are in ascending order of task."""
        ...


@dataclass(frozen=True, slots=True)
class ByPriority:
    """Runs the greatest `fixed + per_wait · wait`, where wait is the head tuple's time in the system.

    Ties go to the oldest head tuple, then to the first task. So tasks of equal priority do not starve each
    other.
    """

    fixed: tuple[float, ...]
    per_wait: tuple[float, ...]

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        fixed, per_wait = self.fixed, self.per_wait

        def key(queue: Queue) -> tuple[float, float, int]:
            task, arrival = queue.task, queue.arrival
            return (fixed[task] + per_wait[task] * max(now - arrival, LEAST_WAIT), -arrival, -task)

        return max(ready, key=key).task


def static_priority(priorities: Sequence[float]) -> ByPriority:
    """Return a policy with constant priorities."""
    return ByPriority(tuple(priorities), (0.0,) * len(priorities))


def growing_priority(growth: Sequence[float]) -> ByPriority:
    """Return a policy whose priorities grow with the waiting time of the head tuple."""
    return ByPriority((0.0,) * len(growth), tuple(growth))
