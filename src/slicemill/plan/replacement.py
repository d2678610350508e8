"""When a unit that runs should have another placement: from what is measured, and not for little (S39)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slicemill.operators.graph import QueryGraph
from slicemill.plan.joined_inputs import joined_inputs
from slicemill.plan.placement import Placement, candidates, price_of
from slicemill.plan.placement_cost import PlacementStatistics
from slicemill.plan.units import Unit

# A unit is left as it is while its busiest cell takes no more than this of a core.
BUSY = 0.5
# A change moves all state, so it must make that much of the price smaller.
_WORTH = 0.3
# … and be so for as many looks in a row; after it, some pass before the next.
_LOOKS, _REST = 3, 12


def measured(
    unit: Unit, graph: QueryGraph, rates: Mapping[str, float], compared: Mapping[str, float]
) -> PlacementStatistics:
    """What is known of a unit from rows per second, by log, and comparisons per second, by join.

    Rows that have a key in common are compared, and no others, where there is an equality.
    """
    joined = joined_inputs(unit, graph)
    known = PlacementStatistics(rates=rates)
    if joined is None or len(joined.inputs) != 2:
        return known
    left, right = joined.inputs
    pairs = known.rate(left.logs[0]) * known.kept(right) + known.rate(right.logs[0]) * known.kept(left)
    if not pairs or left.join not in compared:
        return known
    return PlacementStatistics(rates=rates, matching={left.join: min(1.0, compared[left.join] / pairs)})


def better(
    unit: Unit,
    graph: QueryGraph,
    now: Placement,
    workers: int,
    statistics: PlacementStatistics,
    allowed: Callable[[Placement], bool],
) -> Placement | None:
    """The cheapest of the placements that a unit may change to, if it is much cheaper than that of now.

    With as many cells as there are workers, or twice as many, which balance better.
    """
    price = price_of(now, unit, graph, statistics, workers)
    found = [
        candidate.placement
        for cells in sorted({workers, 2 * workers})
        for candidate in candidates(unit, graph, cells, statistics)
        if candidate.placement != now and allowed(candidate.placement)
    ]
    if not found:
        return None
    prices = [price_of(placement, unit, graph, statistics, workers) for placement in found]
    cheapest = min(range(len(found)), key=prices.__getitem__)
    return found[cheapest] if prices[cheapest] <= (1 - _WORTH) * price else None


@dataclass(slots=True)
class Hysteresis:
    """Of one unit: how often in a row the same other placement was better, and for how long it rests."""

    wanted: Placement | None = None
    looks: int = 0
    rest: int = 0

    def decide(self, found: Placement | None) -> Placement | None:
        """What was found to be better at a look, when that has been so for long enough."""
        self.rest = max(0, self.rest - 1)
        self.looks = self.looks + 1 if found is not None and found == self.wanted else int(found is not None)
        self.wanted = found
        if self.looks < _LOOKS or self.rest:
            return None
        self.looks, self.rest, self.wanted = 0, _REST, None
        return found
