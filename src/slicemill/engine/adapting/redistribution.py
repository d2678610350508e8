"""Redistribution of state when a unit is rescaled.

Each new cell takes its rows from all old cells.

    checkpoint of all cells, as of one run
      cell 0 ─┬─► cell 0'     keeps the rows that it stores from now on
      cell 1 ─┤   cell 1'     …
              └─► cell 2'

Only units whose state consists of join rows can be rescaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from slicemill.engine.program import UnitPlan
from slicemill.operators.cell import HeavyKey
from slicemill.operators.redistribution import Dimension, InputChange, Redistribution
from slicemill.operators.registry import imported, kind_of
from slicemill.plan.partitions import Along, Exchange, exchange_at
from slicemill.plan.placement import Placement


def can_change(plan: UnitPlan, before: Placement, after: Placement) -> bool:
    """Return True if a unit's state can be redistributed to a placement."""
    try:
        for node_id in plan.unit.stateful_nodes:
            if kind_of(plan.graph[node_id].operator).redistribute is None:
                return False
            _changes(plan, node_id, 0, before.exchanges, after.exchanges)
    except ValueError:
        return False
    return True


def redistributed(
    plan: UnitPlan,
    cell: int,
    before: Mapping[str, Exchange],
    heavy: tuple[HeavyKey, ...],
    kept: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """Return the state of a new cell from all old cells."""
    after, was = plan.cell(cell), replace(plan, exchanges=before).cell(0)
    found: dict[str, object] = {}
    for node_id in plan.unit.stateful_nodes:
        operator, states = plan.graph[node_id].operator, [states.get(node_id) for states in kept]
        name = kind_of(operator).redistribute
        if name is not None and any(state is not None for state in states):
            inputs = _changes(plan, node_id, cell, before, plan.exchanges)
            found[node_id] = imported(name)(operator, states, Redistribution(was, after, inputs, heavy))
    return found


def _changes(
    plan: UnitPlan, node_id: str, cell: int, before: Mapping[str, Exchange], after: Mapping[str, Exchange]
) -> tuple[InputChange, ...]:
    node = plan.graph[node_id]
    found = []
    for port in range(len(node.inputs)):
        was, now = (exchange_at(node, port, plan.graph, exchanges) for exchanges in (before, after))
        sources = {0: 0} if was is None else {was.part_of(one): one for one in reversed(range(was.cells))}
        dimensions = () if now is None else _dimensions(now, cell)
        found.append(InputChange(tuple(sorted(sources.values())), dimensions))
    return tuple(found)


def _dimensions(exchange: Exchange, cell: int) -> tuple[Dimension, ...]:
    """Return the dimensions along which rows differ, with a cell's coordinates."""
    found = []
    for along, (count, by) in enumerate(zip(exchange.shape, exchange.by, strict=True)):
        if by is not Along.EVERY:
            place = cell // prod(exchange.shape[along + 1 :]) % count
            found.append(Dimension(count, None if isinstance(by, Along) else by, place))
    return tuple(found)
