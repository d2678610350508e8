"""What a restart may not change: how state is split, which queries are stopped, who reads what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from slicemill.engine.unit_run import Run, RunningUnit, open_outputs
from slicemill.storage.recovery import recover
from slicemill.storage.state import Output, UnitVersion

from slicemill.engine import task
from slicemill.engine.mill import Mill
from slicemill.engine.program import UnitPlan
from slicemill.engine.task import TaskResult
from slicemill.esl import bind
from slicemill.ingest.intake import packed
from slicemill.plan.build import build_graph
from slicemill.plan.units import cut
from slicemill.storage.home import Home

BID = "CREATE STREAM bid (item int, price double, ts timestamp) ORDER BY ts USING json OPTIONS (path 'bids')"
TOTAL = (
    "CREATE QUERY total AS SELECT item, sum(price) OVER (PARTITION BY item ROWS 99 PRECEDING) AS s FROM bid"
)


def write(folder: Path, name: str, *rows: tuple[int, float, int]) -> None:
    (folder / "bids").mkdir(exist_ok=True)
    lines = [json.dumps({"item": item, "price": price, "ts": ts}) for item, price, ts in rows]
    (folder / "bids" / name).write_text("\n".join(lines))


def read(mill: Mill) -> None:
    """All that is there, without ending the streams."""
    mill.start()
    mill.stop()
    mill._reader.read_to_the_end(mill.intakes, mill._needs())
    mill.dispatcher.run_all()


def values(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return sorted((timed.row for timed in mill.queries[query].rows()), key=repr)


def test_state_stays_split_as_it_was_whatever_the_number_of_cores(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, "1.json", *((item, 1.0, item + 1) for item in range(10)))
    with Mill(spark, tmp_path / "home", folder=tmp_path, buckets=3) as mill:
        mill.execute(f"{BID}; {TOTAL}")
        read(mill)
    write(tmp_path, "2.json", *((item, 1.0, item + 20) for item in range(10)))
    with Mill(spark, tmp_path / "home", folder=tmp_path, buckets=2) as mill:
        mill.execute(f"{BID}; {TOTAL}")
        read(mill)
        assert values(mill, "total") == sorted((item, s) for item in range(10) for s in (1.0, 2.0))


def test_queries_registered_one_by_one_are_taken_up_together(spark: SparkSession, tmp_path: Path) -> None:
    statements = [
        BID,
        "CREATE QUERY low AS SELECT item FROM bid WHERE price < 5",
        "CREATE QUERY all_ AS SELECT item FROM bid",
    ]
    write(tmp_path, "1.json", (1, 1.0, 1))
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        for statement in statements:
            mill.execute(statement)
        read(mill)
        # What comes in now is not run before the mill ends.
        write(tmp_path, "2.json", (2, 2.0, 2))
        mill._reader.read_to_the_end(mill.intakes, mill._needs())
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        for statement in statements:
            mill.execute(statement)
        read(mill)
        assert values(mill, "low") == values(mill, "all_") == [(1,), (2,)]


def test_a_query_that_failed_stays_stopped(spark: SparkSession, tmp_path: Path) -> None:
    broken = "CREATE QUERY broken AS SELECT 10 DIV item AS x FROM bid"
    script = f"{BID}; {broken}; CREATE QUERY good AS SELECT item FROM bid"
    write(tmp_path, "1.json", (0, 1.0, 1))
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        mill.execute(script)
        read(mill)
        assert mill.queries["broken"].error is not None
    write(tmp_path, "2.json", (5, 1.0, 2))
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        mill.execute(script)
        read(mill)
        assert mill.queries["broken"].error is not None
        assert values(mill, "broken") == []
        assert values(mill, "good") == [(0,), (5,)]


def test_recovery_keeps_promises_and_removes_what_nobody_names(tmp_path: Path) -> None:
    home = Home(tmp_path)
    schema = bind(f"{BID}; {TOTAL}").catalog.queries["total"].schema
    log, store = home.log("total", schema), home.unit_store("total")
    promised = log.write(log.columns.empty_table())
    orphan = log.folder / log.write(log.columns.empty_table()).path
    store.commit(0, UnitVersion({"bid": 3}, outputs={"total": Output((promised,), 7)}))
    (home.dropped / "half").mkdir(parents=True)

    recover(Home(tmp_path))

    again = Home(tmp_path)
    assert [epoch.chunks for epoch in again.log("total").epochs()] == [(promised,)]
    settled = again.unit_store("total").latest()
    assert settled is not None and (settled.cursors, settled.outputs) == ({"bid": 3}, {})
    assert not orphan.exists() and not home.dropped.exists()
    recover(Home(tmp_path))
    assert Home(tmp_path).unit_store("total").head == 1


@dataclass
class Plan:
    value: bytes


def test_a_program_kept_by_a_run_that_was_never_committed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = bind(f"{BID}; {TOTAL}").catalog
    graph = build_graph(catalog)
    (unit,) = cut(graph)
    plan = UnitPlan(unit, graph, catalog, {})
    home = Home(tmp_path)
    bids = home.log("bid", catalog.declared_stream("bid").schema)
    total = open_outputs(plan, home)["total"]
    running = RunningUnit(plan, home, {"bid": -1})

    def run_over(number: int, price: float) -> tuple[Run, list[TaskResult]]:
        rows = pa.Table.from_pylist([{"item": 1, "price": price, "ts": number}], bids.columns)
        bids.append(f"test:{number}", [bids.write(packed(rows, "ts"))], 0)
        run = running.begin({"bid": number}, now=0)
        plans = {running.digest: Plan(running.pickled)}
        return run, [task.run_task(part, plans) for part in run.tasks]

    in_one_worker: dict[object, object] = {}
    monkeypatch.setattr(task, "_programs", in_one_worker)
    run_over(1, 1.0)  # and the job fails elsewhere
    monkeypatch.setattr(task, "_programs", {})
    run, results = run_over(2, 10.0)
    running.finish(run, results, 0, seconds=0.1)
    monkeypatch.setattr(task, "_programs", in_one_worker)
    run, results = run_over(3, 100.0)
    running.finish(run, results, 0, seconds=0.1)
    sums = [row["s"] for epoch in total.epochs() for row in total.read(epoch.number).to_pylist()]
    assert sums == [1.0, 11.0, 111.0]
