"""Counters of comparisons, named as in the cost model (`operators.join.slices.workload`)."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(slots=True)
class Counters:
    """Numbers of comparisons by purpose.

    As in the cost model, a probing tuple costs 1 per slice for purging, regardless of the number of expired
    tuples, and 1 for closing its results in a union. `visits` counts probing tuples per join, to account for
    an engine's overhead per tuple and operator.
    """

    probe: int = 0
    purge: int = 0
    route: int = 0
    select: int = 0
    split: int = 0
    union: int = 0
    visits: int = 0

    def cost(self, overhead: float = 0.0) -> float:
        """Return all comparisons, plus `overhead` for each visit."""
        return float(sum(astuple(self)[:-1])) + overhead * self.visits

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))
