"""Rescale: change the number of cells of a running unit.

All cells are checkpointed as of one run. Then one journal record commits the new placement, without heavy
keys, and records the placement under which the checkpoint was written. A new running unit takes over, and
each of its cells restores its rows from the files of all former cells (`redistribute_state`). A crash before
the journal record has no effect. A crash after the record is recovered like any other crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from slicemill.errors import SlicemillError
from slicemill.extension import load
from slicemill.operators.cell import HeavyKey
from slicemill.operators.graph import QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.operators.rescale import Dimension, InputChange, Redistribution
from slicemill.plan.partitioning import (
    Along,
    Exchange,
    FormerCells,
    exchange_at,
    exchanges_by_log,
    logs_behind,
)
from slicemill.plan.placement import Placement
from slicemill.plan.units import Unit
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.pipeline import UnitPlan
from slicemill.runtime.units import RunningUnit
from slicemill.storage.changes import Change
from slicemill.storage.home import Home


@dataclass(slots=True)
class Rescaler:
    """Changes the placement of running units."""

    home: Home
    dispatcher: Dispatcher
    mill: str

    def rescale(self, unit: RunningUnit, placement: Placement) -> bool:
        """Rescale a unit.

        Return False, without any change, if its state could not be checkpointed.
        """
        before = Placement.of(unit.plan.exchanges)
        if placement == before:
            return True
        if not can_change(unit.plan.unit, unit.plan.graph, placement):
            raise SlicemillError(f"{unit.id} cannot change from {before} to {placement} while it runs")
        dispatcher = self.dispatcher
        with dispatcher.paused():
            dispatcher.checkpoint([unit])
            if unit.dirty:
                return False
            # If no checkpoint was written since the last rescale, keep the older placement of the existing
            # checkpoint.
            was = {"placement": before.plain(), "heavy": unit.fields.get("heavy") or []}
            checkpoint = {**was, **unit.fields["checkpoint"]}
            fields = {"placement": placement.plain(), "heavy": None, "checkpoint": checkpoint}
            fields["checkpoint_before"] = None  # it has files of the former cells
            self.home.commit(Change(units={unit.id: fields}))
            plan = replace(unit.plan, exchanges=placement.exchanges)
            again = RunningUnit(plan, self.home, self.mill, by_key_alone=unit.by_key_alone)
            self._replace_unit(unit, again)
        return True

    def _replace_unit(self, before: RunningUnit, unit: RunningUnit) -> None:
        unit.inherit_from(before)
        units = [unit if other is before else other for other in self.dispatcher.running.units]
        read_by = exchanges_by_log(one.plan.exchanges for one in units)
        for one in units:
            one.read_by = read_by
        for name, stream in self.dispatcher.streams.items():
            stream.need(stream.plan.need, read_by.get(name, ()))
        self.dispatcher.replace(units)
        self.dispatcher.forget([unit.id], ())


# Redistribution of state when a unit is rescaled. Each new cell reads the rows of all former cells.
#
#     checkpoint of all cells, as of one run
#       cell 0 ─┬─► cell 0'     keeps the rows that it stores from now on
#       cell 1 ─┤   cell 1'     …
#               └─► cell 2'
#
# A unit can be rescaled only if all its state consists of rows of joins.


def can_change(unit: Unit, graph: QueryGraph, after: Placement) -> bool:
    """Return True if a unit can be rescaled to a placement."""
    return not fixed_nodes(unit, graph) and divides_state(unit, graph, after)


def fixed_nodes(unit: Unit, graph: QueryGraph) -> list[str]:
    """Return the stateful nodes of a unit whose state cannot be redistributed."""
    return [id_ for id_ in unit.stateful_nodes if kind_of(graph[id_].operator).redistribute is None]


def divides_state(unit: Unit, graph: QueryGraph, after: Placement) -> bool:
    """Return True if a placement divides all state that can be redistributed.

    Counter-example: a placement by a key that is not stored with the state.
    """
    try:
        for node_id in unit.stateful_nodes:
            node = graph[node_id]
            if kind_of(node.operator).redistribute is not None:
                for port in range(len(node.inputs)):
                    exchange_at(node, port, graph, after.exchanges)
    except ValueError:
        return False
    return True


def redistribute_state(
    plan: UnitPlan,
    cell: int,
    before: FormerCells,
    heavy: tuple[HeavyKey, ...],
    kept: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """Return the state of a new cell, from all former cells."""
    found: dict[str, object] = {}
    for node_id in plan.unit.stateful_nodes:
        operator, states = plan.graph[node_id].operator, [states.get(node_id) for states in kept]
        name = kind_of(operator).redistribute
        if name is not None and any(state is not None for state in states):
            inputs = _input_changes(plan, node_id, cell, before)
            change = Redistribution(before.by_time, plan.cell(cell), inputs, heavy)
            found[node_id] = load(name)(operator, states, change)
    return found


def _input_changes(plan: UnitPlan, node_id: str, cell: int, before: FormerCells) -> tuple[InputChange, ...]:
    node = plan.graph[node_id]
    found = []
    for port in range(len(node.inputs)):
        now = exchange_at(node, port, plan.graph, plan.exchanges)
        sources = before.having_each_row(logs_behind(node, port, plan.graph))
        found.append(InputChange(sources, () if now is None else _dimensions(now, cell)))
    return tuple(found)


def _dimensions(exchange: Exchange, cell: int) -> tuple[Dimension, ...]:
    """Return the dimensions of an exchange, with the cell's coordinates.

    Dimensions along which all cells read the same rows are omitted.
    """
    found = []
    for along, (count, by) in enumerate(zip(exchange.shape, exchange.by, strict=True)):
        if by is not Along.EVERY:
            place = cell // prod(exchange.shape[along + 1 :]) % count
            found.append(Dimension(count, None if isinstance(by, Along) else by, place))
    return tuple(found)
