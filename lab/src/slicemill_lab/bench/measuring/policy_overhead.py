"""Cost of a scheduling decision between many real units, over a log that grows before each decision."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from slicemill.binder import bind
from slicemill.columns.arrow_schema import to_arrow
from slicemill.lifecycle.unit_fields import new_fields
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.units import split_into_units
from slicemill.runtime.pipeline import UnitPlan
from slicemill.runtime.unit_queue import Goal, RunningUnits
from slicemill.runtime.units import RunningUnit
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import POLICIES
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.segments import SegmentWriter
from slicemill.time import wall_clock_us
from slicemill_lab.bench.inputs.hashing import STREAM, group

_DECISIONS = 50
_UNITS_PER_ROUND = 256


def decision_ms(units: int) -> dict[str, float]:
    """Return the median milliseconds of a decision by policy.

    All units are ready, and a log has just grown.
    """
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        home = Home(Path(folder))
        home.open()
        try:
            return _measured(home, _units(home, units))
        finally:
            home.close()


def _measured(home: Home, running: list[RunningUnit]) -> dict[str, float]:
    goals = {log: Goal() for unit in running for _, log in unit.plan.unit.outputs}
    writer = SegmentWriter(home.logs[STREAM].folder, "bench")
    # The same rows are appended repeatedly, as they are never read.
    extents = [writer.append(group(0, 10, 1))]
    writer.release()
    found = {}
    for name, policy in POLICIES.items():
        chooser, took = Chooser(policy), []
        # Set all cursors to the head of the log, so that the order of policies does not matter.
        read = {unit.id: {"cursors": {STREAM: home.logs[STREAM].head}} for unit in running}
        home.commit(Change(units=read))
        board = RunningUnits(running, home.logs, goals, wall_clock_us())
        for _ in range(_DECISIONS):
            home.commit(Change(logs={STREAM: Appended(extents, 0, 0, wall_clock_us())}))
            began, now = time.perf_counter(), wall_clock_us()
            board.refresh(now)
            positions, batches = board.ready(lambda _: 0, now)
            chosen = chooser.choose(batches, _UNITS_PER_ROUND)
            took.append(time.perf_counter() - began)
            board.ran(running[positions[chosen[0]]], now)
        found[name] = round(1000 * statistics.median(took), 3)
    return found


def _units(home: Home, count: int) -> list[RunningUnit]:
    # Each query has its own key, so that no two queries share a unit.
    windows = (f"sum(v) OVER (PARTITION BY k + {n} ROWS 9 PRECEDING) AS s" for n in range(count))
    asked = (
        f"CREATE QUERY q{n} AS SELECT number, {window} FROM {STREAM}" for n, window in enumerate(windows)
    )
    declared = (
        f"CREATE STREAM {STREAM} (epoch int, number int, k int, v int, tag varchar, ts timestamp) ORDER BY ts"
    )
    catalog = bind(";\n".join([declared, *asked])).catalog
    graph = optimize(build_graph(catalog))
    # With all queries in the catalog, each plan would be as large as all of them together.
    streams = catalog.without_queries()
    home.commit(Change(created={STREAM: to_arrow(catalog.declared_stream(STREAM).schema)}))
    plans = []
    for unit in split_into_units(graph):
        needed = frozenset(node for root, _ in unit.outputs for node in graph.ancestors(root))
        plans.append(UnitPlan(unit, graph.only(needed), streams, {}))
    fields = {plan.unit.id: new_fields(plan, home) for plan in plans}
    logs = {log: to_arrow(plan.graph[node].schema) for plan in plans for node, log in plan.unit.outputs}
    home.commit(Change(created=logs, units=fields))
    return [RunningUnit(plan, home, "bench") for plan in plans]
