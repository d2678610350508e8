"""When a unit that runs should have another placement: from what is measured, and not for little (S39)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from slicemill.operators.graph import QueryGraph
from slicemill.plan.joined_inputs import joined_inputs
from slicemill.plan.placement import Placement, candidates, price_of
from slicemill.plan.placement_cost import PlacementStatistics, cost_of
from slicemill.plan.units import Unit

# A unit is left as it is while its busiest cell takes no more than this of a core.
BUSY = 0.5
# A change moves all state, so it must make that much of the price smaller.
_WORTH = 0.3
# … and be so for as many looks in a row; after it, some pass before the next.
_LOOKS, _REST = 3, 12


@dataclass(frozen=True, slots=True)
class UnitWork:
    """In a second: the processor seconds of all cells, and how often each join compares rows."""

    cpu_s: float
    compared: Mapping[str, float]


def measured(
    unit: Unit, graph: QueryGraph, now: Placement, rates: Mapping[str, float], work: UnitWork
) -> PlacementStatistics:
    """What is known of a unit from the rows per second of its logs, and what it does with them now.

    Rows that have a key in common are compared, and no others, where there is an equality. What the model
    says that all this takes is made as much as it does take: columns are wide, conditions are dear.
    """
    joined = joined_inputs(unit, graph)
    known = PlacementStatistics(rates=rates)
    if joined is not None and len(joined.inputs) == 2:
        left, right = joined.inputs
        pairs = known.rate(left.logs[0]) * known.kept(right) + known.rate(right.logs[0]) * known.kept(left)
        if pairs and left.join in work.compared:
            known = replace(known, matching={left.join: min(1.0, work.compared[left.join] / pairs)})
    costs = known.costs
    idle_s = now.cells * costs.cell * 1e-6
    expected_s = cost_of(now.exchanges, unit.inputs, joined, known).cpu_s - idle_s
    factor = max(work.cpu_s - idle_s, 0.0) / expected_s if expected_s > 0 else 1.0
    scaled = {one.name: getattr(costs, one.name) * factor for one in fields(costs) if one.name != "cell"}
    return replace(known, costs=replace(costs, **scaled))


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
        if candidate.placement.exchanges != now.exchanges and allowed(candidate.placement)
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
