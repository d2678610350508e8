"""Costs without a trial: those that a mill has learned of its units, from its home."""

from __future__ import annotations

from pathlib import Path

from slicemill.errors import SlicemillError
from slicemill.esl.catalog import Catalog
from slicemill.metrics.unit_statistics import UnitStatistics
from slicemill.plan.build import build_graph
from slicemill.plan.graph import QueryGraph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.partitions import cell_count
from slicemill.plan.units import Unit, cut
from slicemill.scheduling.capacity import Costs, Output, UnitCost
from slicemill.storage.home import Home, folder_name


def costs_of_home(folder: Path, catalog: Catalog) -> Costs:
    """The units of a script, at the costs that they had in a home where they ran."""
    graph = share(optimize(build_graph(catalog)), catalog)
    home = Home(folder)
    known = [(unit, *_learned(home, unit)) for unit in cut(graph)]
    # What a job costs in any case is part of each unit's figure: no more than the least of them.
    job_s = min((statistics.cost.overhead for _, statistics, _ in known), default=0.0)
    return Costs(job_s, tuple(_cost(*found, job_s, graph, catalog) for found in known))


def _learned(home: Home, unit: Unit) -> tuple[UnitStatistics, int]:
    """A unit's statistics, and into how many buckets it was split."""
    version = None
    if (home.folder / "units" / folder_name(unit.id)).is_dir():
        version = home.unit_store(unit.id).latest()
    kept = version.extra.get("statistics") if version is not None else None
    if version is None or not isinstance(kept, dict) or not kept.get("selectivities"):
        raise SlicemillError(
            f"{unit.id} has not run in {home.folder}; let `slicemill run … --home {home.folder}` run for a "
            "while, or leave --home out to measure now"
        )
    statistics = UnitStatistics()
    statistics.restore(kept)
    return statistics, int(str(version.extra["buckets"]))


def _cost(
    unit: Unit, statistics: UnitStatistics, buckets: int, job_s: float, graph: QueryGraph, catalog: Catalog
) -> UnitCost:
    cost = statistics.cost
    outputs = tuple(output_of(log, statistics.selectivity(log), catalog) for _, log in unit.outputs)
    return UnitCost(
        unit.id,
        unit.inputs,
        outputs,
        splits=cell_count(unit, graph, 2) > 1,
        driver_s=0.0,
        task_s=cost.overhead - job_s,
        row_s=cost.per_row * buckets,
    )


def output_of(log: str, per_row: float, catalog: Catalog) -> Output:
    """A log with what its query asks for, if it is a query's."""
    query = catalog.queries.get(log)
    if query is None:
        return Output(log, per_row, is_query=False)
    slo = query.options.slo
    return Output(log, per_row, True, query.options.weight, None if slo is None else slo.bound_s)
