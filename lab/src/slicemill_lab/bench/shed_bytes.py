"""Bytes of state compared with budgets in bytes, with the remaining accuracy: one temporal query, no Spark.

Budgets are fractions of the state without a budget. The bytes are those in the metrics, after three window
lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow as pa

from slicemill.binder import bind
from slicemill.columns.rows import to_table
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.types import Timed
from slicemill_lab.claims import Claim, at_most
from slicemill_lab.experiment import Scale

TUPLES: Mapping[Scale, int] = {"small": 10_000, "full": 100_000}
SHARES = (0.25, 0.5, 0.75)
METHODS = ("lookahead", "cals", "value", "interval", "random")
BESIDE = 64_000  # overhead beside the budget that docs/shedding.md allows
SEED = 7
_BATCH = 1_000
_SECOND = 1_000_000
_STREAM = "CREATE STREAM s (v double, ts timestamp) ORDER BY ts;"


def against_budgets(scale: Scale) -> tuple[list[Claim], dict[str, Any]]:
    """Check that state respects its budget. Return claims, and figures by method and share."""
    tuples = TUPLES[scale]
    whole, _ = _after("", tuples)
    rows: dict[str, dict[str, Any]] = {}
    most = 0.0
    for method in METHODS:
        for share in SHARES:
            budget = round(share * whole)
            used, accuracy = _after(f"WITH (memory = '{budget} B', shedding = '{method}')", tuples)
            most = max(most, (used - BESIDE) / budget)
            rows[f"{method}, {share:.0%}"] = {
                "budget": budget,
                "bytes of state": used,
                "accuracy": round(accuracy, 3),
            }
    half = max(row["bytes of state"] for name, row in rows.items() if name.endswith("50%"))
    claims = [
        at_most(f"bytes of state beyond {BESIDE} / the budget, over methods and budgets", most, 1.0),
        at_most("bytes of state with half the memory / without a budget", (half - BESIDE) / whole, 0.5),
    ]
    return claims, {"tuples in the window": tuples, "bytes without a budget": whole, "budgets": rows}


def _after(options: str, tuples: int) -> tuple[int, float]:
    """Return the bytes of state and the remaining accuracy after three windows of a stream."""
    query = f"SELECT S.v, VALID(S) FROM s(v) AS S RANGE {tuples} SECONDS SLIDES {tuples // 10} SECONDS"
    catalog = bind(f"{_STREAM} CREATE QUERY q {options} AS {query};").catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    schema = graph[graph.streams["s"]].schema
    random, value = Random(SEED), 0.0
    for first in range(0, 3 * tuples, _BATCH):
        taken = []
        for number in range(first, first + _BATCH):
            value = value if random.random() < 0.5 else float(random.randrange(10**6))
            taken.append(Timed(number * _SECOND, (value, number * _SECOND)))
        table: pa.Table = to_table(taken, schema, [0] * len(taken))
        program.run({"s": table}, {"s": taken[-1].ts})
    reports = list(program.sheds.values())
    return program.state_bytes(), reports[0].accuracy if reports else 1.0
