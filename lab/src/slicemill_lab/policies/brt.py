"""Balance response time: rate times the wait so far; best for the ℓ2 norm of response times (P16)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.segments import rate
from slicemill_lab.policies.policy import ByPriority, Unit, growing_priority


def brt(units: Sequence[Unit]) -> ByPriority:
    return growing_priority([rate(unit.segment) for unit in units])
