"""A case of the corpus for each operator and placement: `make test` runs these on Spark and as tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import cache

from slicemill.operators.specs import QueryResults
from slicemill.plan.placement import AUTO, PlacementKind, choose_placement, placements_of
from slicemill.plan.planner import Planner
from support.corpus import Case, prepare, read_cases

SUBTASKS = 4
# Longer cases take seconds on Spark.
_MOST_ARRIVALS = 30


def placed_cases(beyond: Collection[str] = ()) -> dict[tuple[str, PlacementKind], tuple[Case, str]]:
    """Return a case and a placement for each operator and kind of placement that the corpus has.

    Cases with a tag in `share_beyond` are left out. Rare pairs of operator and kind choose first. A pair
    takes the case with the most arrivals of those that no other pair has taken. If all are taken, the pair
    shares the case of another pair.
    """
    having: dict[tuple[str, PlacementKind], list[tuple[Case, str]]] = defaultdict(list)
    for case, placement, pairs in _placements():
        for pair in pairs if case.needs.isdisjoint(beyond) else ():
            having[pair].append((case, placement))
    found: dict[tuple[str, PlacementKind], tuple[Case, str]] = {}
    taken: set[str] = set()
    for pair in sorted(having, key=lambda pair: (len(having[pair]), pair)):
        free = [one for one in having[pair] if one[0].name not in taken] or having[pair]
        found[pair] = max(free, key=lambda one: len(one[0].arrivals.rows))
        taken.add(found[pair][0].name)
    return found


@cache
def _placements() -> list[tuple[Case, str, set[tuple[str, PlacementKind]]]]:
    """Return all placements of all cases, with operators and the kinds that their tasks get."""
    found = []
    for case in read_cases():
        if case.errors or len(case.arrivals.rows) > _MOST_ARRIVALS:
            continue
        plan = Planner().plan(prepare(case).catalog)
        stateful = [task for task in plan.tasks if task.stateful]
        possible = [{one.kind for one in placements_of(task, plan.graph, SUBTASKS)} for task in stateful]
        for placement in (None, *sorted(set[PlacementKind].intersection(*possible) if possible else ())):
            pairs = set()
            for task in plan.tasks:
                kind = choose_placement(task, plan.graph, SUBTASKS, kind=placement).kind
                operators = (plan.graph[node_id].operator for node_id in task.nodes)
                pairs |= {
                    (type(one).__name__, kind) for one in operators if not isinstance(one, QueryResults)
                }
            found.append((case, placement or AUTO, pairs))
    return found
