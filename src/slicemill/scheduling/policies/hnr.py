"""Highest normalised rate: results over their ideal times, by time; best for the mean slowdown (P13)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def priority(batches: Batches) -> Floats:
    return batches.rate(Aim.SLOWDOWN)
