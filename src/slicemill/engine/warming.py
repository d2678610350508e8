"""Compiling what units will run in the driver, so that workers find it compiled."""

from __future__ import annotations

from slicemill.engine.program import UnitPlan
from slicemill.engine.steps.aggregates import warm
from slicemill.engine.steps.making import Making
from slicemill.esl.catalog import Catalog
from slicemill.kernels.join.warm import warm as warm_joins
from slicemill.plan import operators as op
from slicemill.plan.planner import Planner
from slicemill.plan.units import part_of


def warm_up(plan: UnitPlan) -> None:
    """Compile what a unit will run."""
    if any(isinstance(plan.graph[node_id].operator, op.SharedJoin) for node_id in plan.unit.nodes):
        warm_joins()
    for node_id in plan.unit.nodes:
        warm(Making(plan.graph[node_id], plan.graph, plan.catalog, plan.tables, None))


def warm_up_script(catalog: Catalog) -> None:
    """Compile what the units of a catalog will run, before there is a mill for them."""
    plan = Planner().plan(catalog)
    for unit in plan.units:
        graph = part_of(plan.graph, unit)
        # The rows of tables, which are compiled into aggregates that read them, come with the mill.
        if not any(isinstance(node.operator, op.Scan) for node in graph):
            warm_up(UnitPlan(unit, graph, catalog.without_queries(), {}))
