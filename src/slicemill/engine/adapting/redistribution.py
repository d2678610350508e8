"""State that follows when a unit gets other cells: each of them takes what is its own of all cells before.

    checkpoint of all cells, as of one run
      cell 0 ─┬─► cell 0'     keeps the rows that it stores from now on
      cell 1 ─┤   cell 1'     …
              └─► cell 2'

It can be done where all that a unit keeps are rows of joins, each of which is stored once: by key, by time,
or in a single cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slicemill.engine.program import UnitPlan
from slicemill.operators.cell import HeavyKey
from slicemill.operators.redistribution import Redistribution
from slicemill.operators.registry import imported, kind_of
from slicemill.plan.partitions import Exchange, key_places
from slicemill.plan.placement import Placement, PlacementKind

_STORED_ONCE = (PlacementKind.ONE, PlacementKind.KEY, PlacementKind.TIME)


def can_change(plan: UnitPlan, before: Placement, after: Placement) -> bool:
    """Can the state of a unit follow from one placement to another?"""
    operators = (plan.graph[node_id].operator for node_id in plan.unit.stateful_nodes)
    kept = all(kind_of(operator).redistribute is not None for operator in operators)
    return kept and before.kind in _STORED_ONCE and after.kind in _STORED_ONCE


def redistributed(
    plan: UnitPlan,
    cell: int,
    before: Mapping[str, Exchange],
    heavy: tuple[HeavyKey, ...],
    kept: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """The states of a cell of a plan, by node, from what all cells of before kept."""
    after = plan.cell(cell)
    by_key = after.count > 1 and not after.by_time
    found: dict[str, object] = {}
    for node_id in plan.unit.stateful_nodes:
        states = [states[node_id] for states in kept if node_id in states]
        name = kind_of(plan.graph[node_id].operator).redistribute
        if states and name is not None:
            places = key_places(plan.graph[node_id], plan.graph, plan.exchanges) if by_key else ()
            change = Redistribution(replace(plan, exchanges=before).cell(0), after, places, heavy)
            found[node_id] = imported(name)(states, change)
    return found
