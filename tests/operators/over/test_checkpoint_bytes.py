"""What a checkpoint has of calls that slide is what later windows need, not the batches that brought it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import write_checkpoint

BATCH = 20_000
STREAM = "CREATE STREAM s (k int, v double, t varchar, ts timestamp) ORDER BY ts;"
OWN = """CREATE AGGREGATE total(x double) : double {
  TABLE kept(sum double);
  INITIALIZE: { INSERT INTO kept VALUES (x); }
  ITERATE: { UPDATE kept SET sum = sum + x; }
  TERMINATE: { INSERT INTO RETURN SELECT sum FROM kept; } };"""
WINDOWS = {
    "tumbling rows": "ROWS 99 PRECEDING SLIDE 100",
    "sliding rows": "ROWS 199 PRECEDING SLIDE 100",
    "tumbling time": "RANGE 100 MICROSECONDS PRECEDING SLIDE 100 MICROSECONDS",
    "sliding time": "RANGE 200 MICROSECONDS PRECEDING SLIDE 100 MICROSECONDS",
}


def batch(first: int) -> pa.Table:
    """Rows with a text that weighs something: whoever keeps the batch is found out."""
    indices = np.arange(first, first + BATCH)
    return pa.table(
        {
            "_ts": indices,
            "_seq": indices,
            "_arr": indices,
            "k": pa.array(np.zeros(BATCH, np.int32)),
            "v": indices / 7,
            "t": pa.array([f"a text of some length, number {index}" for index in indices]),
            "ts": pa.array(indices, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.mark.parametrize(
    "window",
    ["ROWS 9999 PRECEDING SLIDE 1000", "RANGE 10000 MICROSECONDS PRECEDING SLIDE 1000 MICROSECONDS"],
)
def test_an_algebraic_aggregate_keeps_panes_and_no_rows(window: str) -> None:
    """Ten panes in place of 10 000 rows, which are 240 kB without the word ALGEBRAIC."""
    query = f"CREATE QUERY q AS SELECT total(v) OVER (PARTITION BY k {window}) AS x FROM s;"
    kept = []
    for own in (OWN, OWN.replace("CREATE", "CREATE ALGEBRAIC")):
        catalog = bind(f"{STREAM}{own}{query}").catalog
        graph = build_graph(catalog)
        (task,) = split_into_tasks(graph)
        program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
        assert not program.run({"s": batch(0)}, {"s": BATCH - 1}).errors
        kept.append(program.state_bytes())
    assert kept[1] < kept[0] / 10


@pytest.mark.parametrize("aggregate", ["total", "sum", "median"])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_checkpoint_has_no_batches(aggregate: str, window: str, tmp_path: Path) -> None:
    query = f"CREATE QUERY q AS SELECT t, {aggregate}(v) OVER (PARTITION BY k {WINDOWS[window]}) AS x FROM s;"
    catalog = bind(f"{STREAM}{OWN}{query}").catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    for first in range(0, 2 * BATCH, BATCH):
        # A few tuples of an open slot are left over.
        table = batch(first).slice(0, BATCH - 95 if first else BATCH)
        outcome = program.run({"s": table}, {"s": int(table["_ts"][-1].as_py())})
        assert not outcome.errors
    write_checkpoint(tmp_path, program.states)
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    # 200 tuples with their texts are 20 kB; a batch is 2 MB.
    assert stored < 100_000
    assert program.state_bytes() < 200_000
