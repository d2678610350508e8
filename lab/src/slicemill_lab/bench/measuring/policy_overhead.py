"""Cost of a scheduling decision between many real tasks, over a log that grows before each decision."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from slicemill.binder import bind
from slicemill.columns.arrow_schema import to_arrow
from slicemill.lifecycle.task_fields import new_fields
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.task_queue import Goal, RunningTasks
from slicemill.runtime.tasks import RunningTask
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import POLICIES
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.segments import SegmentWriter
from slicemill.time import wall_clock_us
from slicemill_lab.bench.inputs.hashing import STREAM, group

_DECISIONS = 50
_TASKS_PER_ROUND = 256


def decision_ms(tasks: int) -> dict[str, float]:
    """Return the median milliseconds of a decision by policy.

    All tasks are ready, and a log has just grown.
    """
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        home = Home(Path(folder))
        home.open()
        try:
            return _measured(home, _tasks(home, tasks))
        finally:
            home.close()


def _measured(home: Home, running: list[RunningTask]) -> dict[str, float]:
    goals = {log: Goal() for task in running for _, log in task.plan.task.outputs}
    writer = SegmentWriter(home.logs[STREAM].folder, "bench")
    # The same rows are appended repeatedly, as they are never read.
    extents = [writer.append(group(0, 10, 1))]
    writer.release()
    found = {}
    for name, policy in POLICIES.items():
        chooser, took = Chooser(policy), []
        # Set all cursors to the head of the log, so that the order of policies does not matter.
        read = {task.id: {"cursors": {STREAM: home.logs[STREAM].head}} for task in running}
        home.commit(Change(tasks=read))
        board = RunningTasks(running, home.logs, goals, wall_clock_us())
        for _ in range(_DECISIONS):
            home.commit(Change(logs={STREAM: Appended(extents, 0, 0, wall_clock_us())}))
            began, now = time.perf_counter(), wall_clock_us()
            board.refresh(now)
            positions, batches = board.ready(dict.fromkeys(board.logs_to_check(), 0), now)
            chosen = chooser.choose(batches, _TASKS_PER_ROUND)
            took.append(time.perf_counter() - began)
            board.ran(running[positions[chosen[0]]], now)
        found[name] = round(1000 * statistics.median(took), 3)
    return found


def _tasks(home: Home, count: int) -> list[RunningTask]:
    # Each query has its own key, so that no two queries share a task.
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
    for task in split_into_tasks(graph):
        needed = frozenset(node for root, _ in task.outputs for node in graph.ancestors(root))
        plans.append(TaskPlan(task=task, graph=graph.only(needed), catalog=streams, tables={}))
    fields = {plan.task.id: new_fields(plan, home) for plan in plans}
    logs = {log: to_arrow(plan.graph[node].schema) for plan in plans for node, log in plan.task.outputs}
    home.commit(Change(created=logs, tasks=fields))
    return [RunningTask(plan, home, "bench") for plan in plans]
