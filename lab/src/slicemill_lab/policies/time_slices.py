"""Round robin with equal time slices: each unit in turn, for a slice or until its queue is empty (A9)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slicemill_lab.policies.policy import Queue, SimulatedUnit


class TimeSlices:
    """Round robin with time slices. The current tuple is always finished."""

    __slots__ = ("_current", "_since", "_units", "quantum")

    def __init__(self, units: int, quantum: float) -> None:
        self.quantum = quantum
        self._units = units
        self._current = 0
        self._since = -math.inf

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        if now - self._since < self.quantum and any(queue.unit == self._current for queue in ready):
            return self._current
        self._current = min(
            (queue.unit for queue in ready), key=lambda unit: (unit - self._current - 1) % self._units
        )
        self._since = now
        return self._current


def time_slices(units: Sequence[SimulatedUnit], quantum: float | None = None) -> TimeSlices:
    """Return the policy. By default, a slice is the ideal time of the longest query."""
    longest = max(float(unit.segment.ideal_time) for unit in units)
    return TimeSlices(len(units), longest if quantum is None else quantum)
