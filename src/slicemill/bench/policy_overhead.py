"""What a decision costs with many units: real ones, over a log that grows before each decision."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from slicemill.bench.policy_load import STREAM, group
from slicemill.engine.board import Board, Goal
from slicemill.engine.mill import wall_clock_us
from slicemill.engine.program import UnitPlan
from slicemill.engine.unit_run import RunningUnit, open_outputs
from slicemill.esl import bind
from slicemill.esl.catalog import Catalog
from slicemill.ingest.intake import packed
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize
from slicemill.plan.units import cut
from slicemill.scheduling.dispatch import POLICIES, Chooser
from slicemill.storage.home import Home

_DECISIONS = 50
_CORES = 2


def decision_ms(units: int) -> dict[str, float]:
    """The median milliseconds of a decision, by policy: all units are ready, and a log has just grown."""
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        home = Home(Path(folder))
        running = _units(home, units)
        goals = {log: Goal() for unit in running for _, log in unit.plan.unit.outputs}
        board = Board(running, home.logs, goals, wall_clock_us())
        log = home.logs[STREAM]
        chunk = log.write(packed(group(0, 10, 1).cast(log.columns), "ts"))
        found = {}
        for name, policy in POLICIES.items():
            chooser, took = Chooser(policy), []
            for _ in range(_DECISIONS):
                log.append(f"bench:{log.head + 1}", [chunk], wall_clock_us())
                began, now = time.perf_counter(), wall_clock_us()
                board.refresh(now)
                positions, batches = board.ready(lambda _: 0, now)
                ready = [running[position] for position in positions]
                tasks = [unit.plan.buckets for unit in ready]
                chosen = chooser.choose_job(batches, tasks, _CORES)
                took.append(time.perf_counter() - began)
                board.ran(ready[chosen[0]], now)
            found[name] = round(1000 * statistics.median(took), 3)
        return found


def _units(home: Home, count: int) -> list[RunningUnit]:
    windows = (f"sum(v) OVER (PARTITION BY k ROWS {n} PRECEDING) AS s" for n in range(count))
    asked = (
        f"CREATE QUERY q{n} AS SELECT number, {window} FROM {STREAM}" for n, window in enumerate(windows)
    )
    declared = (
        f"CREATE STREAM {STREAM} (epoch int, number int, k int, v int, tag varchar, ts timestamp) ORDER BY ts"
    )
    catalog = bind(";\n".join([declared, *asked])).catalog
    graph = optimize(build_graph(catalog))
    home.log(STREAM, catalog.declared_stream(STREAM).schema)
    # Tasks would need the streams only; with all queries each of the plans would be as long as all together.
    streams = Catalog(dict(catalog.relations))
    units = []
    for unit in cut(graph):
        needed = frozenset(node for root, _ in unit.outputs for node in graph.ancestors(root))
        plan = UnitPlan(unit, graph.only(needed), streams, {})
        open_outputs(plan, home)
        units.append(RunningUnit(plan, home, {STREAM: -1}))
    return units
