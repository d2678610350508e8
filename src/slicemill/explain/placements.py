"""EXPLAIN of placements: which subtasks (parallel instances) read and store a row, and at which cost.

The JSON is a list of tasks. Each task has these keys:

- `id`; `nodes`; `inputs` and `outputs`: names of logs
- `subtasks`: maximum number of subtasks
- `placement`: `kind`, `shape`, and `by`, which has keys, `every` or `stripe` for each log and dimension
- `why`: reason for the placement
- `measured`: false if rates are assumed; `rates`: rows per second of each log
- `candidates`: the cheapest placement of each kind, in order of cost. Each has `kind`, `shape`, `cpu_s` and
  `slowest_s` (CPU seconds per second of all subtasks and of the slowest subtask), `rows_kept`, `most_kept`
  (in one subtask) and `rows_read` (per second).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slicemill.operators.graph import QueryGraph
from slicemill.operators.protocol import Fact
from slicemill.plan.placement import (
    Candidate,
    Placement,
    PlacementKind,
    candidates,
    choose_placement,
    restore_placement,
)
from slicemill.plan.placement_cost import PlacementCost, PlacementStatistics, statistics_of_task
from slicemill.plan.tasks import Task, split_into_tasks

_WHY = {
    PlacementKind.KEY: "joined rows have equal keys, so each row is read and stored by one subtask",
    PlacementKind.TIME: "joined rows may have any keys: all subtasks read each row, and one stores it",
    PlacementKind.HYBRID: "a few heavy keys have much of the work: all subtasks read their rows; "
    "any other row is read by one subtask",
    PlacementKind.HYPERCUBE: "joined rows have equal keys, but some inputs lack some keys: "
    "the rows of such an input are sent to all subtasks along the dimension of the missing key",
    PlacementKind.CUBE: "joined rows may have any keys: each input is partitioned along one dimension and "
    "replicated along the others",
}


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """Task with its current placement and all possible placements, cheapest first."""

    task: Task
    subtasks: int
    placement: Placement
    found: tuple[Candidate, ...]
    statistics: PlacementStatistics

    @property
    def why(self) -> str:
        kind = self.placement.kind
        if kind is not PlacementKind.ONE:
            return _WHY[kind]
        if self.subtasks == 1:
            return "the task may use only one subtask"
        if len(self.found) == 1:
            return "its state has no key in common with all its inputs, so it cannot be partitioned"
        return "the task has so little work that one subtask is fastest"

    @property
    def cost(self) -> PlacementCost:
        return next(one.cost for one in self.found if one.placement == self.placement)

    @property
    def cheapest(self) -> list[Candidate]:
        """Return the cheapest possible placement of each kind."""
        by_kind: dict[PlacementKind, Candidate] = {}
        for one in self.found:
            by_kind.setdefault(one.placement.kind, one)
        return list(by_kind.values())


def place_tasks(
    graph: QueryGraph, subtasks: int, kept: Mapping[str, Mapping[str, Any]] | None = None
) -> list[PlacedTask]:
    """Return the stateful tasks of a query graph with their placements.

    `kept` maps task ids to current placements, in the form of the journal. All other tasks get the cheapest
    placement with at most `subtasks` subtasks.
    """
    found = []
    for task in split_into_tasks(graph):
        if not task.stateful:
            continue
        known = (kept or {}).get(task.id)
        placement = None if known is None else restore_placement(task, graph, known)
        statistics = statistics_of_task(task, graph, placement.exchanges if placement is not None else None)
        placement = placement or choose_placement(task, graph, subtasks, statistics)
        own = placement.subtasks if placement.subtasks > 1 else subtasks
        listed = tuple(candidates(task, graph, own, statistics))
        found.append(PlacedTask(task, own, placement, listed, statistics))
    return found


def placement_facts(placed: PlacedTask) -> tuple[Fact, ...]:
    """Return the lines that EXPLAIN prints about a task's placement, as pairs of label and text."""
    facts: list[Fact] = [("placement", _describe_placement(placed.placement)), ("why", placed.why)]
    others = [one for one in placed.cheapest if one.placement.kind is not placed.placement.kind]
    if placed.subtasks > 1 and others:
        rates = ", ".join(f"{placed.statistics.rate(log):,.0f} rows/s of {log}" for log in placed.task.inputs)
        facts.append(("measured" if placed.statistics.measured else "assumed", rates))
        facts.append(("costs", _costs(placed.cost)))
        facts += [("alternative", f"{one.placement}: {_costs(one.cost)}") for one in others]
    return tuple(facts)


def placements_data(tasks: Iterable[PlacedTask]) -> list[dict[str, Any]]:
    """Return the tasks and their placements as plain lists, dicts, strings and numbers."""
    return [
        {
            "id": placed.task.id,
            "nodes": list(placed.task.nodes),
            "inputs": list(placed.task.inputs),
            "outputs": [log for _, log in placed.task.outputs],
            "subtasks": placed.subtasks,
            "placement": placed.placement.plain(),
            "why": placed.why,
            "measured": placed.statistics.measured,
            "rates": {log: placed.statistics.rate(log) for log in placed.task.inputs},
            "candidates": [_candidate(one) for one in placed.cheapest],
        }
        for placed in tasks
    ]


def _describe_placement(placement: Placement) -> str:
    """Describe a placement, and how each log is distributed over the subtasks."""
    spread = []
    for log, along in placement.plain()["by"].items():
        words = [{"every": "to all subtasks", "stripe": "round-robin"}.get(by, f"by {by}") for by in along]
        spread.append(f"{log} {' and '.join(words)}")
    return f"{placement}: {', '.join(spread)}" if spread else str(placement)


def _costs(cost: PlacementCost) -> str:
    return (
        f"{cost.cpu_s:.3g} CPU s per s, {cost.slowest_s:.3g} in the slowest subtask; {cost.rows_kept:,.0f} "
        f"rows stored, {cost.most_kept:,.0f} in the fullest subtask; {cost.rows_read:,.0f} rows read per s"
    )


def _candidate(one: Candidate) -> dict[str, Any]:
    cost = one.cost
    return {
        "kind": one.placement.kind.value,
        "shape": list(one.placement.shape),
        "cpu_s": cost.cpu_s,
        "slowest_s": cost.slowest_s,
        "rows_kept": cost.rows_kept,
        "most_kept": cost.most_kept,
        "rows_read": cost.rows_read,
    }
