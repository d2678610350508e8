"""Round robin RR(k): units in turn, up to k tuples per visit, starting with the steepest unit (M13)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.charts import slope
from slicemill_lab.policies.policy import Queue, SimulatedUnit


class RoundRobin:
    """Round robin. A visit ends after `quantum` tuples, or when the unit has no more input."""

    __slots__ = ("_current", "_left", "_quantum")

    def __init__(self, first: int, quantum: int) -> None:
        if quantum < 1:
            raise ValueError(f"the quantum of round robin must be at least 1 tuple, not {quantum}")
        self._quantum = quantum
        self._current = first
        self._left = quantum

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        current = self._current
        unit = next(
            (queue.unit for queue in ready if queue.unit >= current + (not self._left)), ready[0].unit
        )
        if unit != current or not self._left:
            self._current, self._left = unit, self._quantum
        self._left -= 1
        return unit


def round_robin(units: Sequence[SimulatedUnit], quantum: int = 1) -> RoundRobin:
    """Return round robin in the order of the units, starting with the greatest mean slope."""
    first = max(range(len(units)), key=lambda unit: slope(units[unit].piece))
    return RoundRobin(first, quantum)
