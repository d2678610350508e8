"""A budget in bytes is kept: by what the metrics say, and by what the process has allocated."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

import pyarrow as pa
import pytest

from slicemill.binder import bind
from slicemill.columns.rows import to_table
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.types import Timed

STREAM = "CREATE STREAM s (k int, v double, ts timestamp) ORDER BY ts;"
# What docs/shedding.md says is kept beside the tuples: 64 reports, 128 slides, and 64 runs for accuracy.
BESIDE = 64_000
WINDOW_S, TUPLES = 2_000, 2_000
POLICIES = ["cals", "lookahead", "value", "threshold", "interval", "random"]
# Of a run slot, by the same page.
RUN_BYTES = 1_300


def script(options: str, rows: bool = False) -> str:
    window = (
        f"RANGE {TUPLES} ROWS SLIDES 500 ROWS" if rows else f"RANGE {WINDOW_S} SECONDS SLIDES 200 SECONDS"
    )
    least = "WHERE CAST(VALID(S) AS INTERVAL SECOND) >= 3" if "threshold" in options else ""
    return f"{STREAM} CREATE QUERY q {options} AS SELECT S.v, VALID(S) FROM s(v) AS S {window} {least};"


def program_of(text: str) -> TaskProgram:
    catalog = bind(text).catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    return TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))


def fed(text: str, rows: int = 3 * TUPLES) -> tuple[int, int, int]:
    """Bytes of the state by the metrics, bytes that are allocated, and tuples dropped."""
    random, value, batches = Random(3), 0.0, []
    program = program_of(text)
    schema = program.plan.graph[program.plan.graph.streams["s"]].schema
    for first in range(0, rows, 500):
        taken = []
        for number in range(first, first + 500):
            value = float(random.randrange(10**6)) if random.random() < 0.5 else value
            ts = number * 1_000_000
            taken.append(Timed(ts, (0, value, ts)))
        batches.append(to_table(taken, schema, [0] * len(taken)))
    for batch in batches[
        :2
    ]:  # what is compiled, and imported, does not count; what is kept is gone in the end
        _run(program, batch)
    gc.collect()
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    for batch in batches[2:]:
        # A copy, which goes unless the state holds on to it.
        _run(program, batch.take(pa.array(range(len(batch)))))
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - arrow
    tracemalloc.stop()
    dropped = sum(report.dropped for report in program.sheds.values())
    return program.state_bytes(), used, dropped


def _run(program: TaskProgram, table: pa.Table) -> None:
    outcome = program.run({"s": table}, {"s": int(table.column("_ts")[-1].as_py())})
    assert not outcome.errors


@pytest.mark.parametrize("budget", [16_000, 64_000])
@pytest.mark.parametrize("policy", POLICIES)
def test_state_is_no_larger_than_its_budget(policy: str, budget: int) -> None:
    measured, allocated, dropped = fed(script(f"WITH (memory = '{budget} B', shedding = '{policy}')"))
    assert dropped > 0
    assert measured <= budget + BESIDE
    assert allocated <= budget + BESIDE


@pytest.mark.parametrize("runs", [12, 50, 200])
def test_run_slots_take_no_more_than_is_told_for_each(runs: int) -> None:
    measured, allocated, dropped = fed(script(f"WITH (memory = '{runs} runs')"))
    assert dropped > 0
    assert measured <= runs * RUN_BYTES + BESIDE
    assert allocated <= runs * RUN_BYTES + BESIDE


def test_windows_that_count_tuples_keep_to_their_budget() -> None:
    measured, allocated, dropped = fed(script("WITH (memory = '64 KB')", rows=True))
    assert dropped > 0 and max(measured, allocated) <= 64_000 + BESIDE


@pytest.mark.slow_cpu
def test_half_of_the_tuples_take_less_than_all() -> None:
    whole, _, _ = fed(script(""))
    half, _, dropped = fed(script(f"WITH (memory = '{TUPLES // 2} tuples')"))
    assert dropped > 0 and half < whole


@pytest.mark.parametrize(
    "options", ["", "WITH (memory = '64 KB')", "WITH (memory = '64 KB', shedding = 'random')"]
)
def test_metrics_say_what_the_process_has(options: str) -> None:
    measured, allocated, _ = fed(script(options))
    assert measured == pytest.approx(allocated, rel=0.35, abs=BESIDE / 2)
