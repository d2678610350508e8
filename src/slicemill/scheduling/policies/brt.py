"""Balance response time: rate times the wait so far; best for the ℓ2 norm of response times (P16)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def priority(batches: Batches) -> Floats:
    return batches.wait * batches.rate(Aim.RESPONSE)
