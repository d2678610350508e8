"""Unit costs from the statistics in a home, without a trial."""

from __future__ import annotations

from math import prod
from pathlib import Path

from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import Catalog
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.placement import placements_of
from slicemill.plan.units import Unit, cut
from slicemill.scheduling.capacity import Costs, Output, UnitCost
from slicemill.scheduling.unit_statistics import UnitStatistics
from slicemill.storage.home_reader import HomeReader


def costs_of_home(folder: Path, catalog: Catalog) -> Costs:
    """Return the costs of a script's units as learned in a home."""
    graph = share(optimize(build_graph(catalog)), catalog)
    home = HomeReader(folder)
    known = [(unit, *_learned(home, unit)) for unit in cut(graph)]
    # Each unit's overhead includes the fixed cost of a job, which is at most the least overhead.
    job_s = min((statistics.cost.overhead for _, statistics, _ in known), default=0.0)
    return Costs(job_s, tuple(unit_cost(*found, job_s, graph, catalog) for found in known))


def _learned(home: HomeReader, unit: Unit) -> tuple[UnitStatistics, int]:
    """Return a unit's statistics and its number of cells."""
    fields = home.units.get(unit.id, {})
    kept = fields.get("statistics", {})
    known = kept.get("selectivities", {})
    if not all(log in known for _, log in unit.outputs):
        raise SlicemillError(
            f"{unit.id} has not run in {home.folder}; let `slicemill run … --home {home.folder}` run for a "
            "while, or leave --home out to measure now"
        )
    statistics = UnitStatistics()
    statistics.restore(kept)
    return statistics, prod(fields["placement"]["shape"])


def unit_cost(
    unit: Unit, statistics: UnitStatistics, cells: int, job_s: float, graph: QueryGraph, catalog: Catalog
) -> UnitCost:
    """Return the cost of a unit from statistics gathered with `cells` cells."""
    cost = statistics.cost
    outputs = tuple(output_of(log, statistics.selectivity(log), catalog) for _, log in unit.outputs)
    return UnitCost(
        unit.id,
        unit.inputs,
        outputs,
        splits=len(placements_of(unit, graph, 2)) > 1,
        driver_s=0.0,
        task_s=cost.overhead - job_s,
        row_s=cost.per_row * cells,
    )


def output_of(log: str, per_row: float, catalog: Catalog) -> Output:
    """Return a log with its query's weight and SLO, if any."""
    query = catalog.queries.get(log)
    if query is None:
        return Output(log, per_row, is_query=False)
    slo = query.options.slo
    return Output(log, per_row, True, query.options.weight, None if slo is None else slo.bound_s)
