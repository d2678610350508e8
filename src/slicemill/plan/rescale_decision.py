"""Decision to change a running task's placement, based on measured costs (S39)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from slicemill.operators.graph import QueryGraph
from slicemill.plan.join_inputs import join_inputs_of
from slicemill.plan.placement import Placement, candidates, price_of
from slicemill.plan.placement_cost import PlacementStatistics, cost_of
from slicemill.plan.tasks import Task

# A task is not changed while its busiest subtask uses less than this share of a core.
BUSY = 0.5
# A change moves all state, so the price must fall by this share.
_WORTH = 0.3
# A change requires `_LOOKS` checks in a row with the same result. After it, `_REST` checks are skipped.
_LOOKS, _REST = 3, 12


@dataclass(frozen=True, slots=True)
class TaskWork:
    """Measured CPU seconds per second, and row comparisons of each join."""

    cpu_s: float
    compared: Mapping[str, float]


def calibrate_statistics(
    task: Task, graph: QueryGraph, now: Placement, rates: Mapping[str, float], work: TaskWork
) -> PlacementStatistics:
    """Return inputs of the cost model, scaled to the task's measured work.

    With an equality, only rows with a common key are compared, so the number of comparisons yields the share
    of matching pairs. The model ignores wide columns and expensive conditions. So the costs per row are
    multiplied by the factor that makes the model yield the measured CPU time.
    """
    joined = join_inputs_of(task, graph)
    known = PlacementStatistics(rates=rates)
    if joined is not None and len(joined.inputs) == 2:
        left, right = joined.inputs
        pairs = known.rate(left.logs[0]) * known.kept(right) + known.rate(right.logs[0]) * known.kept(left)
        if pairs and left.join in work.compared:
            known = replace(known, matching={left.join: min(1.0, work.compared[left.join] / pairs)})
    costs = known.costs
    idle_s = now.subtasks * costs.subtask * 1e-6
    expected_s = cost_of(now.exchanges, task.inputs, joined, known).cpu_s - idle_s
    factor = max(work.cpu_s - idle_s, 0.0) / expected_s if expected_s > 0 else 1.0
    scaled = {one.name: getattr(costs, one.name) * factor for one in fields(costs) if one.name != "subtask"}
    return replace(known, costs=replace(costs, **scaled))


def cheaper_placement(
    task: Task,
    graph: QueryGraph,
    now: Placement,
    workers: int,
    statistics: PlacementStatistics,
    allowed: Callable[[Placement], bool],
) -> Placement | None:
    """Return the cheapest allowed placement, or None if it saves too little.

    Candidates have as many subtasks as there are workers, or twice as many for better balance.
    """
    price = price_of(now, task, graph, statistics, workers)
    found = [
        candidate.placement
        for subtasks in sorted({workers, 2 * workers})
        for candidate in candidates(task, graph, subtasks, statistics)
        if candidate.placement.exchanges != now.exchanges and allowed(candidate.placement)
    ]
    if not found:
        return None
    prices = [price_of(placement, task, graph, statistics, workers) for placement in found]
    cheapest = min(range(len(found)), key=prices.__getitem__)
    return found[cheapest] if prices[cheapest] <= (1 - _WORTH) * price else None


@dataclass(slots=True)
class Hysteresis:
    """Delay of a change until several checks have found the same placement."""

    wanted: Placement | None = None
    looks: int = 0
    rest: int = 0

    def decide(self, found: Placement | None) -> Placement | None:
        """Record a check, and return the placement if the change is due."""
        self.rest = max(0, self.rest - 1)
        self.looks = self.looks + 1 if found is not None and found == self.wanted else int(found is not None)
        self.wanted = found
        if self.looks < _LOOKS or self.rest:
            return None
        self.looks, self.rest, self.wanted = 0, _REST, None
        return found
