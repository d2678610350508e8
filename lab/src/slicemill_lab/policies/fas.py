"""Freshness-aware scheduling: what most probably makes a result stale for the least work first (P32-P34).

With N tuples pending, a stream is stale with probability 1 - (1 - S)^N, and N·C̄ of work makes it fresh. The
exponent β of N turns from freshness (1) to response time (0, where it is the highest rate).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.errors import SlicemillError
from slicemill_lab.policies.policy import Queue, Unit


def staleness_probability(selectivity: float, pending: float) -> float:
    """That at least one of the pending tuples is a result. A join's productivity above 1 counts as 1."""
    if selectivity >= 1.0:
        return 1.0 if pending > 0 else 0.0
    return -math.expm1(pending * math.log1p(-selectivity))


def fas_priority(
    selectivity: float, cost: float, pending: int, weight: float = 1.0, beta: float = 1.0
) -> float:
    counted = math.pow(pending, beta)
    return weight * staleness_probability(selectivity, counted) / (counted * cost)


@dataclass(slots=True)
class FreshnessAware:
    """Priorities depend on how much is pending, not on the clock."""

    selectivities: tuple[float, ...]
    costs: tuple[float, ...]
    weights: tuple[float, ...]
    beta: float

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        def key(queue: Queue) -> tuple[float, float, int]:
            unit = queue.unit
            value = fas_priority(
                self.selectivities[unit], self.costs[unit], len(queue), self.weights[unit], self.beta
            )
            return value, -queue.arrival, -unit

        return max(ready, key=key).unit


def fas(units: Sequence[Unit], beta: float = 1.0) -> FreshnessAware:
    if not 0.0 <= beta <= 1.0:
        raise SlicemillError(f"beta of fas lies between 0 (response time) and 1 (freshness), not at {beta}")
    return FreshnessAware(
        tuple(float(unit.segment.selectivity) for unit in units),
        tuple(float(unit.segment.cost) for unit in units),
        tuple(unit.weight for unit in units),
        beta,
    )
