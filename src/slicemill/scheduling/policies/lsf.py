"""Longest stretch first: the greatest slowdown so far first; best for the greatest slowdown (P14)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    return batches.wait * (1 / batches.ideal_time)
