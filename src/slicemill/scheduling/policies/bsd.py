"""Balance slowdown: normalised rate times the slowdown so far; best for the ℓ2 norm of slowdowns (P15)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def priority(batches: Batches) -> Floats:
    return batches.wait * batches.rate(Aim.BALANCE)
