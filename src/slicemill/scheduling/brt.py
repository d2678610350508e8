"""Balance response time: rate times the wait so far; best for the ℓ2 norm of response times (P16)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.scheduling.policy import ByPriority, Unit, growing_priority
from slicemill.scheduling.segments import rate


def brt(units: Sequence[Unit]) -> ByPriority:
    return growing_priority([rate(unit.segment) for unit in units])
