"""Longest stretch first: the greatest slowdown so far first; best for the greatest slowdown (P14)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.policies.policy import ByPriority, Unit, growing_priority


def lsf(units: Sequence[Unit]) -> ByPriority:
    return growing_priority([1.0 / float(unit.segment.ideal_time) for unit in units])
