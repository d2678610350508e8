"""What a decision costs with many units: real ones, over a log that grows before each decision."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from slicemill.bench.policy_load import STREAM, group
from slicemill.engine.board import Board, Goal
from slicemill.engine.joining import new_fields
from slicemill.engine.program import UnitPlan
from slicemill.engine.unit import RunningUnit
from slicemill.esl import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize
from slicemill.plan.units import cut
from slicemill.scheduling.dispatch import POLICIES, Chooser
from slicemill.storage.arrow_schema import to_arrow, with_system_columns
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.segments import SegmentWriter

_DECISIONS = 50
_CHOSEN = 256  # as many as the dispatcher asks for


def decision_ms(units: int) -> dict[str, float]:
    """The median milliseconds of a decision, by policy: all units are ready, and a log has just grown."""
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        home = Home(Path(folder))
        home.lock()
        home.open()
        try:
            return _measured(home, _units(home, units))
        finally:
            home.close()


def _measured(home: Home, running: list[RunningUnit]) -> dict[str, float]:
    goals = {log: Goal() for unit in running for _, log in unit.plan.unit.outputs}
    board = Board(running, home.logs, goals, _now_us())
    added = _rows(home)
    found = {}
    for name, policy in POLICIES.items():
        chooser, took = Chooser(policy), []
        for _ in range(_DECISIONS):
            home.commit(Change(logs={STREAM: added}))
            began, now = time.perf_counter(), _now_us()
            board.refresh(now)
            positions, batches = board.ready(lambda _: (0, 0), now)
            chosen = chooser.choose(batches, _CHOSEN)
            took.append(time.perf_counter() - began)
            board.ran(running[positions[chosen[0]]], now)
        found[name] = round(1000 * statistics.median(took), 3)
    return found


def _now_us() -> int:
    return time.time_ns() // 1_000


def _rows(home: Home) -> Appended:
    """Some rows in a segment; every epoch may name them again."""
    log = home.logs[STREAM]
    rows = group(0, 10, 1)
    columns = with_system_columns(log.columns)
    for position, name in enumerate(("_ts", "_seq", "_arr")):
        rows = rows.add_column(position, name, [list(range(rows.num_rows))])
    extent = SegmentWriter(log.folder, "bench").append(rows.select(columns.names).cast(columns))
    return Appended([extent], 0, rows.num_rows - 1, _now_us())


def _units(home: Home, count: int) -> list[RunningUnit]:
    # Each of a key of its own: windows of one key are one unit, however many there are.
    asked = (
        f"CREATE QUERY q{n} AS SELECT number, sum(v) OVER (PARTITION BY k % {n + 2} ROWS 9 PRECEDING) AS s "
        f"FROM {STREAM}"
        for n in range(count)
    )
    declared = (
        f"CREATE STREAM {STREAM} (epoch int, number int, k int, v int, tag varchar, ts timestamp) ORDER BY ts"
    )
    catalog = bind(";\n".join([declared, *asked])).catalog
    graph = optimize(build_graph(catalog))
    home.commit(Change(created={STREAM: to_arrow(catalog.declared_stream(STREAM).schema)}))
    streams = catalog.without_queries()
    units = []
    for unit in cut(graph):
        needed = frozenset(node for root, _ in unit.outputs for node in graph.ancestors(root))
        plan = UnitPlan(unit, graph.only(needed), streams, {})
        created = {log: to_arrow(plan.graph[node].schema) for node, log in unit.outputs}
        home.commit(Change(created=created, units={unit.id: new_fields(plan, home)}))
        units.append(RunningUnit(plan, home, "bench"))
    return units
