"""Round robin: who has not run for longest; a baseline (P11)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    return batches.idle
