"""Highest normalised rate: the rate over the query's ideal time; best for the mean slowdown (P13)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.scheduling.policy import ByPriority, Unit, static_priority
from slicemill.scheduling.segments import rate


def hnr(units: Sequence[Unit]) -> ByPriority:
    return static_priority([rate(unit.segment) / float(unit.segment.ideal_time) for unit in units])
