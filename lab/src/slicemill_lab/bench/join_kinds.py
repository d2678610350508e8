"""Cost of outer, semi and anti joins relative to an inner join of the same rows, in one process.

Only the task of the join runs, so ingestion does not hide the difference. The kinds take turns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.binder import bind
from slicemill.operators.join.state import JoinState
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram

KINDS = ("INNER", "LEFT", "FULL", "SEMI", "ANTI")
_STREAM = "CREATE STREAM {} (k bigint, v bigint, ts timestamp) ORDER BY ts;"
_SPACING_US, _WINDOW_S, _RUN = 500, 80, 4_000


@dataclass(frozen=True, slots=True)
class KindCost:
    """Best CPU seconds over the rounds, results, and rows of state at the end."""

    cpu_s: float
    results: int
    state_rows: int


def cost_by_kind(rows: int, keys: int, rounds: int) -> dict[str, KindCost]:
    """Measure joins of two streams with `rows` rows each, over windows of 80 seconds."""
    streams = {name: _stream(seed, rows, keys) for seed, name in enumerate("ab")}
    best: dict[str, KindCost] = {}
    for _ in range(rounds):
        for kind in KINDS:
            cost = _run(kind, streams)
            if kind not in best or cost.cpu_s < best[kind].cpu_s:
                best[kind] = cost
    return best


def _stream(seed: int, rows: int, keys: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    times = np.arange(rows) * _SPACING_US
    values = {"k": chance.integers(0, keys, rows), "v": chance.integers(0, 1_000, rows)}
    system = {"_ts": times, "_seq": np.arange(rows), "_arr": times}
    return pa.table({**system, **values, "ts": pa.array(times, pa.timestamp("us"))})


def _run(kind: str, streams: dict[str, pa.Table]) -> KindCost:
    window = f"[RANGE {_WINDOW_S} SECONDS]"
    items = "a.k, a.v" if kind in ("SEMI", "ANTI") else "a.k, a.v, b.v AS w"
    query = f"SELECT {items} FROM a {window} {kind} JOIN b {window} ON a.k = b.k"
    catalog = bind(f"{_STREAM.format('a')} {_STREAM.format('b')} CREATE QUERY q AS {query};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    begun, results = time.process_time(), 0
    for first in range(0, streams["a"].num_rows, _RUN):
        complete = dict.fromkeys(streams, (first + _RUN) * _SPACING_US)
        outcome = program.run({name: rows.slice(first, _RUN) for name, rows in streams.items()}, complete)
        results += outcome.tables["q"].num_rows
    cpu_s = time.process_time() - begun
    states = (state for state in program.states.values() if isinstance(state, JoinState))
    return KindCost(cpu_s, results, sum(held.rows for state in states for held in state.held()))
