"""Comparisons as they are made, under the names of the cost model (`plan.slices.costs`)."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(slots=True)
class Counters:
    """What has been compared so far, by purpose.

    As in the cost model, a probing tuple purges a slice at a cost of 1 however many tuples leave, and closes
    its results in a union at a cost of 1 however many there are. `visits` counts probing tuples handed to a
    join: what an engine's own overhead per tuple and operator multiplies.
    """

    probe: int = 0
    purge: int = 0
    route: int = 0
    select: int = 0
    split: int = 0
    union: int = 0
    visits: int = 0

    def cost(self, overhead: float = 0.0) -> float:
        """All comparisons, and `overhead` for each visit."""
        return float(sum(astuple(self)[:-1])) + overhead * self.visits

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))
