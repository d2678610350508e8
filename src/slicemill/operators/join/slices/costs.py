"""State memory and comparisons: the cost unit of all plans (S7, S8, S15)."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class ChainCost:
    """State memory of a plan, and its comparisons per unit of time.

    Comparisons are listed by purpose. Probing a pair, purging, routing, selecting, splitting a stream, and a
    step of a union cost 1 each.
    """

    memory: float = 0.0
    probe: float = 0.0
    purge: float = 0.0
    route: float = 0.0
    select: float = 0.0
    split: float = 0.0
    union: float = 0.0
    overhead: float = 0.0

    @property
    def cpu(self) -> float:
        return float(sum(astuple(self)[1:]))

    def __add__(self, other: ChainCost) -> ChainCost:
        return ChainCost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))
