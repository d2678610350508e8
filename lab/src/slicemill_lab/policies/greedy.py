"""Per-tuple greedy: runs the head tuple with the steepest drop (M13).

With one output per tuple, that is the cheapest head tuple. An expensive head tuple hides cheap tuples behind
it, which the maximum-slope-segment policy does see.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from slicemill_lab.policies.policy import Queue, SimulatedTask

_HEAD_SLOPE = attrgetter("head_slope")


class Greedy:
    """Compares head tuples only."""

    __slots__ = ()

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        return max(ready, key=_HEAD_SLOPE).task


def greedy(tasks: Sequence[SimulatedTask]) -> Greedy:  # noqa: ARG001
    """Return the policy. It needs no mean figures of tasks."""
    return Greedy()
