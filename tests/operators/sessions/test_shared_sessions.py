"""Session queries that share their pass and their values."""

from __future__ import annotations

import pyarrow as pa

from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram

STREAM = "CREATE STREAM click (k int, v bigint, ts timestamp) ORDER BY ts;"


def test_a_sum_that_does_not_fit_stops_its_own_query_and_no_other_of_the_same_call() -> None:
    selects = [
        f"CREATE QUERY {name} AS SELECT k, sum(v) AS s FROM click [SESSION {gap} MICROSECONDS] GROUP BY k;"
        for name, gap in (("short", 1), ("long", 5))
    ]
    catalog = bind(STREAM + "".join(selects)).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    times = [10, 14, 20]
    rows = {"_ts": times, "_seq": [0, 1, 2], "_arr": times, "k": pa.array([1] * 3, pa.int32())}
    table = pa.table({**rows, "v": [2**63 - 1] * 2 + [1], "ts": pa.array(times, pa.timestamp("us"))})
    outcome = program.run({"click": table}, {"click": 20})
    assert outcome.tables["short"].column("s").to_pylist() == [2**63 - 1] * 2
    assert "out of the range of 64 bits" in outcome.errors["long"]
