"""Queries that share a task come and go while it runs; its state stays."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from slicemill.api.mill import Mill

STREAM = (
    "CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts "
    "USING json OPTIONS (path 'bids');"
)
TASK = "aggregates of bid by item"


def query(name: str, call: str, range_s: int) -> str:
    window = f"[RANGE {range_s} SECONDS SLIDE 1 SECOND]"
    return (
        f"CREATE QUERY {name} AS SELECT item, {call} AS c, window_end() AS e FROM bid {window} GROUP BY item;"
    )


def write(folder: Path, name: str, seconds: range) -> None:
    lines = [json.dumps({"item": 1, "price": float(s), "ts": s * 1_000_000}) for s in seconds]
    (folder / "bids" / name).write_text("\n".join(lines))


def arrived(mill: Mill, rows: int) -> None:
    mill.dispatcher.run_all()
    for _ in range(3_000):
        mill.dispatcher.check()
        if sum(epoch.rows for epoch in mill.home.logs["bid"].epochs(after=-1)) >= rows:
            return
        with mill.dispatcher.changed:
            mill.dispatcher.changed.wait(0.01)
    raise AssertionError("rows did not arrive")


def rows(mill: Mill, name: str) -> list[tuple[object, float]]:
    return [(timed.row[1], timed.ts / 1_000_000) for timed in mill.queries[name].timed_rows()]


def test_queries_join_and_leave_a_running_task(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    with Mill(spark, tmp_path / "home", folder=tmp_path, subtasks=2) as mill:
        mill.execute(STREAM + query("total", "sum(price)", 3))
        write(tmp_path, "1.json", range(1, 5))
        mill.start()
        arrived(mill, 4)
        now = "QUERY most FROM NOW WITH (incomplete = 'show')"
        mill.execute(query("most", "max(price)", 2).replace("QUERY most", now))
        assert list(mill.dispatcher.tasks) == [TASK]
        write(tmp_path, "2.json", range(5, 8))
        arrived(mill, 7)
        most = mill.queries["most"]
        mill.execute("DROP QUERY most")
        write(tmp_path, "3.json", range(8, 10))
        mill.drain()
        # Windows [e - 3, e) of 1, 2, 3 … 9.
        sums = [(float(sum(s for s in range(1, 10) if e - 3 <= s < e)), float(e)) for e in range(2, 13)]
        assert rows(mill, "total") == sums
        # What came before it joined, up to 4, is not in its windows.
        found = [(timed.row[1], timed.ts / 1_000_000) for timed in most.timed_rows()]
        assert found and found == [(float(e - 1), float(e)) for e in range(6, 6 + len(found))]
        mill.execute("DROP QUERY total")
        assert not mill.dispatcher.tasks


def test_a_mill_that_starts_again_goes_on_with_shared_state(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    script = STREAM + query("total", "sum(price)", 3) + query("most", "max(price)", 2)
    for name, seconds in (("1.json", range(1, 5)), ("2.json", range(5, 8))):
        with Mill(spark, tmp_path / "home", folder=tmp_path, subtasks=2) as mill:
            mill.execute(script)
            write(tmp_path, name, seconds)
            mill.start()
            arrived(mill, seconds.stop - 1)
            mill.dispatcher.run_all()
            sums = [(float(sum(s for s in range(1, 8) if e - 3 <= s < e)), float(e)) for e in range(2, 8)]
            assert rows(mill, "total") == sums[: seconds.stop - 2]
            assert rows(mill, "most") == [(float(e - 1), float(e)) for e in range(2, seconds.stop)]
