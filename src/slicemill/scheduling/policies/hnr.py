"""Highest normalised rate: the rate over the ideal time; best for the mean slowdown (P13)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    return batches.rate / batches.ideal_time
