"""First come, first served: the oldest row of all runs first; best for the longest response time (P11)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    return batches.wait
