"""Highest normalised rate: the rate over the query's ideal time; best for the mean slowdown (P13)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.segments import rate
from slicemill_lab.policies.policy import ByPriority, Unit, static_priority


def hnr(units: Sequence[Unit]) -> ByPriority:
    return static_priority([rate(unit.segment) / float(unit.segment.ideal_time) for unit in units])
