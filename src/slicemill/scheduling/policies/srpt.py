"""Shortest remaining processing time: who is done soonest, if every row passes all of the way (P11)."""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    _, per_row = batches.cost()
    return 1 / (batches.ideal_time + per_row * (batches.rows - 1))
