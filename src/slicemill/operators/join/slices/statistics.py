"""Statistics for planning a chain: assumed at first, then measured (S52)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Statistics:
    """Rows per second of each stream that some query selects, and selectivities.

    `passing` has the selectivity of conditions by query and side; the default is `selected`. `matching` is
    the share of pairs with equal keys.
    """

    rates: tuple[float, ...] = (100.0, 100.0)
    matching: float = 0.01
    selected: float = 0.5
    passing: Mapping[tuple[str, int], float] = field(default_factory=dict)
    measured: bool = False


ASSUMED = Statistics()


def over_cells(parts: Sequence[Statistics]) -> Statistics:
    """Combine the statistics of cells that partition the streams by key."""
    rates = tuple(sum(by_stream) for by_stream in zip(*(part.rates for part in parts), strict=True))
    passing: dict[tuple[str, int], float] = {}
    for part in parts:
        for (query, side), share in part.passing.items():
            weight = part.rates[side] / rates[side] if rates[side] else 0.0
            passing[query, side] = passing.get((query, side), 0.0) + share * weight
    matching = sum(part.matching * _pairs(part.rates) for part in parts)
    possible = _pairs(rates)
    return Statistics(rates, matching / possible if possible else 0.0, passing=passing, measured=True)


def _pairs(rates: Sequence[float]) -> float:
    first, second = sorted(rates)[-2:]
    return first * second
