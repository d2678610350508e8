"""Highest rate: most results per time first; best for the mean response time (P12)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.segments import rate
from slicemill_lab.policies.policy import ByPriority, Unit, static_priority


def hr(units: Sequence[Unit]) -> ByPriority:
    return static_priority([rate(unit.segment) for unit in units])
