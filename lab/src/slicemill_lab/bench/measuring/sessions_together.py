"""Cost of many session queries over one stream and key relative to one of them, in one process.

Visitors click in bursts: every 2 s on average, with pauses of a minute on average after twenty clicks. Only
the task of the sessions runs, so ingestion does not hide the savings of sharing. One query and sixteen
queries take turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram

_STREAM = "CREATE STREAM click (visitor bigint, v bigint, price double, ts timestamp) ORDER BY ts;"
_SECOND = 1_000_000
_RESULTS = (
    "count(*) AS n",
    "sum(v) AS total",
    "avg(price) AS mean",
    "max(v) AS top",
    "count(*) AS n, sum(price) AS total",
    "min(price) AS least, max(price) AS top",
    "avg(v) AS mean, count(v) AS n",
    "count(*) AS n, window_start() AS begun",
)
MANY = tuple(
    f"SELECT visitor, {_RESULTS[number % len(_RESULTS)]} FROM click [SESSION {5 * (number + 1)} SECONDS] "
    "GROUP BY visitor"
    for number in range(16)
)
ONE = (f"SELECT visitor, {_RESULTS[4]} FROM click [SESSION 40 SECONDS] GROUP BY visitor",)


def one_and_many(rows: int, visitors: int, run: int, rounds: int) -> tuple[float, float]:
    """Return CPU seconds of one query, and of sixteen with different gaps and aggregates; best of rounds.

    `run` is the number of rows per run.
    """
    clicks = _clicks(rows, visitors)
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for place, queries in enumerate((ONE, MANY)):
            best[place] = min(best[place], _run(queries, clicks, run))
    return best[0], best[1]


def _clicks(rows: int, visitors: int) -> pa.Table:
    chance = np.random.default_rng(7)
    each = rows // visitors
    pauses = np.where(
        chance.random((visitors, each)) < 0.05,
        chance.exponential(60 * _SECOND, (visitors, each)),
        chance.exponential(2 * _SECOND, (visitors, each)),
    )
    times = np.cumsum(pauses.astype(np.int64), axis=1)
    order = np.argsort(times, axis=None, kind="stable")
    stamps = times.ravel()[order]
    system = {"_ts": stamps, "_seq": np.arange(len(order)), "_arr": stamps}
    values = {"visitor": order // each, "v": chance.integers(0, 1_000, len(order))}
    price = chance.random(len(order)) * 100
    return pa.table({**system, **values, "price": price, "ts": pa.array(stamps, pa.timestamp("us"))})


def _run(queries: Sequence[str], clicks: pa.Table, run: int) -> float:
    script = "".join(f"CREATE QUERY q{number} AS {query};" for number, query in enumerate(queries))
    catalog = bind(_STREAM + script).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    begun = time.process_time()
    for first in range(0, clicks.num_rows, run):
        table = clicks.slice(first, run)
        program.run({"click": table}, {"click": int(table.column("_ts")[-1].as_py())})
    return time.process_time() - begun
