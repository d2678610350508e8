"""Decision of the autoscaler to change a running task's placement, based on measured costs.

A placement says which subtasks (parallel instances of the task) read and store a row (S39).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from slicemill.operators.graph import QueryGraph
from slicemill.plan.join_inputs import join_inputs_of
from slicemill.plan.placement import Placement, candidates, price_of
from slicemill.plan.placement_cost import PlacementStatistics, cost_of
from slicemill.plan.tasks import Task

# minimum load of the busiest subtask, as a share of a core, for any change
BUSY = 0.5
# A change moves all state, so it must reduce the estimated cost by at least this share.
_WORTH = 0.3
# Number of equal decisions in a row before a change, and number of decisions skipped after a change
_LOOKS, _REST = 3, 12


@dataclass(frozen=True, slots=True)
class TaskWork:
    """Measured CPU seconds per second of a task, and the row comparisons of each join."""

    cpu_s: float
    compared: Mapping[str, float]


def calibrate_statistics(
    task: Task, graph: QueryGraph, now: Placement, rates: Mapping[str, float], work: TaskWork
) -> PlacementStatistics:
    """Return statistics for the cost model, scaled to the measured CPU time of the task.

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
    """Return the cheapest allowed placement, or None if it saves less than 30 %.

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
    """Delay of a placement change until several decisions in a row agree."""

    wanted: Placement | None = None
    looks: int = 0
    rest: int = 0

    def decide(self, found: Placement | None) -> Placement | None:
        """Record the placement that the latest decision prefers; return it once the change is due."""
        self.rest = max(0, self.rest - 1)
        self.looks = self.looks + 1 if found is not None and found == self.wanted else int(found is not None)
        self.wanted = found
        if self.looks < _LOOKS or self.rest:
            return None
        self.looks, self.rest, self.wanted = 0, _REST, None
        return found
