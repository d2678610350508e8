"""Per-tuple greedy: compares only the head tuples and runs the one with the steepest drop (M13).

With one output per tuple that is the cheapest one. A dear tuple hides the cheap ones behind it, which is what
the maximum-slope-segment policy sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from slicemill_lab.policies.policy import Queue, SimulatedUnit

_HEAD_SLOPE = attrgetter("head_slope")


class Greedy:
    """Looks one tuple deep."""

    __slots__ = ()

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        return max(ready, key=_HEAD_SLOPE).unit


def greedy(units: Sequence[SimulatedUnit]) -> Greedy:  # noqa: ARG001
    """The same for any units: it needs no mean figures."""
    return Greedy()
