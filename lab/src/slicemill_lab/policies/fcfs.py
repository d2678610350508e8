"""First come, first served: the oldest tuple of all runs first; best for the longest response time (P11)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.policies.policy import ByPriority, Unit, growing_priority


def fcfs(units: Sequence[Unit]) -> ByPriority:
    return growing_priority([1.0] * len(units))
