"""Warm-up: the driver compiles the code of units, so that workers find it in the cache."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

from slicemill.engine.program import UnitPlan
from slicemill.engine.unit import RunningUnit
from slicemill.esl.types.catalog import Catalog
from slicemill.operators.context import StepContext, step_of
from slicemill.operators.registry import imported, kind_of
from slicemill.operators.step import Compiling
from slicemill.operators.streams.spec import Scan
from slicemill.plan.planner import Planner
from slicemill.plan.units import part_of


def warm_up(plan: UnitPlan) -> None:
    """Compile what a unit will run."""
    for node_id in plan.unit.nodes:
        node = plan.graph[node_id]
        kind = kind_of(node.operator)
        if kind.warm is not None:
            imported(kind.warm)()
        if kind.compiles:
            step = step_of(StepContext(node, plan.graph, plan.catalog, plan.tables, None))
            if isinstance(step, Compiling):
                for uda in step.udas:
                    uda.warm()


def compile_beside(units: Iterable[RunningUnit], compiled: Callable[[], None]) -> None:
    """Compile the code of new units while other units run.

    Those with the least to compile come first; `compiled` is called when one more may run.
    """
    waiting = sorted((u for u in units if not u.compiled), key=lambda unit: unit.plan.unit.stateful)

    def compile_all() -> None:
        for unit in waiting:
            # What is wrong with its code is said when it runs, and stops its own queries.
            with contextlib.suppress(Exception):
                warm_up(unit.plan)
            unit.compiled = True
            compiled()

    if waiting:
        threading.Thread(target=compile_all, name="slicemill compiler", daemon=True).start()


def warm_up_script(catalog: Catalog) -> None:
    """Compile what the units of a catalog will run, before there is a mill for them."""
    plan = Planner().plan(catalog)
    for unit in plan.units:
        graph = part_of(plan.graph, unit)
        # The rows of tables, which are compiled into aggregates that read them, come with the mill.
        if not any(isinstance(node.operator, Scan) for node in graph):
            warm_up(UnitPlan(unit, graph, catalog.without_queries(), {}))
