"""What the simulator asks at each scheduling point: which of the units with pending input runs next.

A chooser is made for a list of units (see the registry) and may keep state, so each run needs a fresh one.
Those of the product's policies are in `asked`; the others are for simulators only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slicemill.scheduling.arrays import Floats
from slicemill_lab.charts.charts import Piece
from slicemill_lab.charts.segments import SegmentFigures

LEAST_WAIT = 1e-9
"""A tuple that has just come has waited so long: the rest of its priority still counts (A12)."""


@dataclass(frozen=True, slots=True)
class SimulatedUnit:
    """What is known in advance of a thing that can be run, by mean figures."""

    name: str
    piece: Piece
    """The unit's own line in the chart of the objective, per tuple at its head."""
    segment: SegmentFigures
    """From its head to the root of its query."""
    weight: float = 1.0
    """How much its query matters, 1 being the most (P33)."""


class Queue(Protocol):
    """The pending input of one unit at a scheduling point."""

    @property
    def unit(self) -> int:
        """The unit's position in the list the policy was made for."""
        ...

    @property
    def arrival(self) -> float:
        """When the head tuple entered the system."""
        ...

    @property
    def head_slope(self) -> float:
        """The head tuple's drop over its time: the first of `drops` over the first of `times`."""
        ...

    @property
    def times(self) -> Floats:
        """What each pending tuple will really take, oldest first: known to a simulator, else estimated."""
        ...

    @property
    def drops(self) -> Floats:
        """By how much each pending tuple will really lower the chart."""
        ...

    def __len__(self) -> int: ...


class TupleChooser(Protocol):
    """Chooses a unit; it never has to choose among none."""

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        """The `unit` of one of the queues; they are in ascending order of unit and none is empty."""
        ...


@dataclass(frozen=True, slots=True)
class ByPriority:
    """The greatest `fixed + per_wait · wait` runs first, wait being the head tuple's time in the system.

    Ties go to the oldest head, then to the first unit, so that units of equal priority do not starve one
    another.
    """

    fixed: tuple[float, ...]
    per_wait: tuple[float, ...]

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        fixed, per_wait = self.fixed, self.per_wait

        def key(queue: Queue) -> tuple[float, float, int]:
            unit, arrival = queue.unit, queue.arrival
            return (fixed[unit] + per_wait[unit] * max(now - arrival, LEAST_WAIT), -arrival, -unit)

        return max(ready, key=key).unit


def static_priority(priorities: Sequence[float]) -> ByPriority:
    """A policy that never changes its mind."""
    return ByPriority(tuple(priorities), (0.0,) * len(priorities))


def growing_priority(growth: Sequence[float]) -> ByPriority:
    """A policy whose priorities grow with the time that the head tuple has waited."""
    return ByPriority((0.0,) * len(growth), tuple(growth))
