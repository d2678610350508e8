"""Balance slowdown: normalised rate times the slowdown so far; best for the ℓ2 norm of slowdowns (P15)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.segments import rate
from slicemill_lab.policies.policy import ByPriority, Unit, growing_priority


def bsd(units: Sequence[Unit]) -> ByPriority:
    return growing_priority([rate(unit.segment) / float(unit.segment.ideal_time) ** 2 for unit in units])
