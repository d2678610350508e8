"""Earliest deadline first; meets all service levels while they can be met (P24).

Who has no deadline comes after all that have one.
"""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    return -batches.slack
