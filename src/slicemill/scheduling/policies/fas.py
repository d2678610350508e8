"""Freshness-aware scheduling: what is most probably stale for the least work, each query counted (P32-P34).

With N rows pending, an output is stale with probability 1 - (1 - S)^N, and B(N) of work makes it fresh. The
exponent β of N turns from freshness (1) to response time (0, where it is the highest rate).
"""

from __future__ import annotations

import numpy as np

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def value(
    pending: Floats,
    selectivity: Floats,
    overhead: Floats,
    per_row: Floats,
    weight: Floats,
    outputs: Floats,
    beta: float,
) -> Floats:
    """The priority, where a join's productivity above 1 counts as 1.

    The simulator compiles it for single numbers.
    """
    counted = pending**beta
    stale: Floats = -np.expm1(counted * np.log1p(-np.minimum(selectivity, 1.0)))
    return weight * outputs * stale / (overhead + per_row * counted)


def priority(batches: Batches, beta: float = 1.0) -> Floats:
    figures, units = batches.figures, batches.units
    overhead, per_row = batches.cost()
    with np.errstate(divide="ignore"):  # where every row is a result
        return value(
            batches.pending,
            figures.selectivity[units],
            overhead,
            per_row,
            figures.weight[units],
            figures.queries[units],
            beta,
        )
