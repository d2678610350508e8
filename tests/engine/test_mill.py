"""A mill on Spark: what comes out of real sources, while queries come and go and mills stop and start."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.errors import SlicemillError
from slicemill.sql.errors import EslError
from slicemill_oracle.runner import run_script
from support.engine import checkpoint_twice

ROOT = Path(__file__).parents[2]

BIDS = """
CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts USING json OPTIONS (path 'bids');
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
CREATE QUERY mean AS SELECT item, avg(price) OVER (PARTITION BY item ROWS 2 PRECEDING) AS mean FROM bid;
CREATE QUERY bad AS SELECT reason FROM bid_errors;
CREATE QUERY late AS SELECT item FROM bid_late;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "bids").mkdir()
    yield tmp_path


def write(folder: Path, name: str, *rows: tuple[int, object, int]) -> None:
    lines = [json.dumps({"item": item, "price": price, "ts": ts}) for item, price, ts in rows]
    (folder / "bids" / name).write_text("\n".join(lines))


def mill_in(folder: Path, spark: SparkSession) -> Mill:
    return Mill(spark, folder / "home", folder=folder, subtasks=2)


def values(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return [timed.row for timed in mill.queries[query].timed_rows()]


def test_the_auction_gives_the_rows_of_the_reference_engine(spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "auction.esl").read_text(encoding="utf-8")
    text = re.sub(r"(nexmark://\w+)\?[^']*", r"\1?events=600&rate=30&speed=as-fast-as-possible", text)
    with Mill(spark, tmp_path, folder=ROOT, subtasks=2) as mill:
        mill.execute(text)
        mill.drain()
        expected = run_script(bind(text).catalog, ROOT)
        for query in expected.queries:
            assert sorted(mill.queries[query.name].timed_rows(), key=repr) == sorted(query.rows, key=repr), (
                query.name
            )
            assert mill.queries[query.name].error is None


def test_bad_rows_and_late_rows_go_to_streams_of_their_own(spark: SparkSession, folder: Path) -> None:
    with mill_in(folder, spark) as mill:
        mill.execute(BIDS)
        write(folder, "1.json", (1, 20.0, 1_000_000), (1, "abc", 2_000_000), (1, 40.0, 3_000_000))
        mill.start()
        wait_for(mill, "dear", 2)
        write(folder, "2.json", (2, 99.0, 2_500_000), (2, 11.0, 4_000_000))
        mill.drain()
        assert values(mill, "dear") == [(1, 20.0), (1, 40.0), (2, 11.0)]
        assert values(mill, "late") == [(2,)]
        assert values(mill, "bad") == [("column price: 'abc' is no DOUBLE",)]


def wait_for(mill: Mill, query: str, rows: int) -> None:
    """Until the query has so many rows; what goes wrong meanwhile is raised."""
    for _ in range(2_000):
        mill.dispatcher.check()
        if len(mill.queries[query].timed_rows()) >= rows:
            return
        with mill.dispatcher.changed:
            mill.dispatcher.changed.wait(0.05)
    raise AssertionError(f"{query} has {mill.queries[query].timed_rows()}")


def test_a_mill_that_starts_again_goes_on_where_it_was(spark: SparkSession, folder: Path) -> None:
    write(folder, "1.json", (1, 10.0, 1_000_000), (1, 20.0, 2_000_000))
    with mill_in(folder, spark) as mill:
        mill.execute(BIDS)
        mill.start()
        wait_for(mill, "mean", 2)
    write(folder, "2.json", (1, 60.0, 3_000_000), (1, 10.0, 4_000_000))
    with mill_in(folder, spark) as mill:
        mill.execute(BIDS)
        mill.drain()
        assert values(mill, "mean") == [(1, 10.0), (1, 15.0), (1, 30.0), (1, 30.0)]


def test_queries_come_and_go_while_others_run(spark: SparkSession, folder: Path) -> None:
    with mill_in(folder, spark) as mill:
        mill.execute(BIDS)
        write(folder, "1.json", (1, 20.0, 1_000_000))
        mill.start()
        wait_for(mill, "dear", 1)
        cheap = mill.query("CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5")
        dear = mill.queries["dear"]
        write(folder, "2.json", (2, 30.0, 2_000_000), (3, 1.0, 3_000_000))
        wait_for(mill, "cheap", 1)
        wait_for(mill, "dear", 2)
        dear.drop()
        assert "dear" not in mill.queries
        write(folder, "3.json", (4, 50.0, 4_000_000), (5, 2.0, 5_000_000))
        mill.drain()
        assert [t.row for t in cheap.timed_rows()] == [(3,), (5,)]
        assert [t.row for t in dear.timed_rows()] == [(1, 20.0), (2, 30.0)]
        assert len(values(mill, "mean")) == 5


def test_a_query_that_fails_stops_alone(spark: SparkSession, folder: Path) -> None:
    write(folder, "1.json", (1, 20.0, 1_000_000), (0, 30.0, 2_000_000))
    with mill_in(folder, spark) as mill:
        mill.execute(BIDS)
        mill.query("CREATE QUERY broken AS SELECT 10 DIV item AS x FROM bid")
        mill.drain()
        assert "zero" in str(mill.queries["broken"].error)
        assert values(mill, "dear") == [(1, 20.0), (0, 30.0)]
        assert mill.queries["dear"].error is None


def test_a_script_with_a_mistake_registers_nothing(spark: SparkSession, folder: Path) -> None:
    with mill_in(folder, spark) as mill:
        with pytest.raises(EslError, match="did you mean price"):
            mill.execute(BIDS + "SELECT prise FROM bid;")
        assert not mill.queries


def test_two_mills_cannot_share_a_home(spark: SparkSession, folder: Path) -> None:
    with mill_in(folder, spark), pytest.raises(SlicemillError, match=r"another mill .* runs"):
        mill_in(folder, spark)


def test_any_streaming_frame_can_be_a_stream_and_results_can_be_followed(
    spark: SparkSession, folder: Path
) -> None:
    write(folder, "1.json", (1, 20.0, 1_000_000), (2, 30.0, 2_000_000))
    frame = spark.readStream.schema("item int, price double, ts bigint").json(str(folder / "bids"))
    with mill_in(folder, spark) as mill:
        mill.stream("offers", frame.selectExpr("item", "price", "timestamp_micros(ts) AS ts"), time="ts")
        query = mill.query("SELECT item FROM offers WHERE price > 25")
        seen: list[int] = []
        query.subscribe(lambda live: seen.extend(row["item"] for row in live.rows))
        mill.drain()
        assert seen == [2]
        assert query.to_pandas()["item"].tolist() == [2]
        assert "Filter" in query.explain()
        assert query.measured().rows == 1


def test_a_sink_gets_every_result_once_also_over_a_restart(spark: SparkSession, folder: Path) -> None:
    script = BIDS.replace("CREATE QUERY dear AS", "CREATE QUERY dear WITH (sink = 'json:out') AS")
    write(folder, "1.json", (1, 20.0, 1_000_000))
    with mill_in(folder, spark) as mill:
        mill.execute(script)
        mill.start()
        wait_for(mill, "dear", 1)
    write(folder, "2.json", (2, 30.0, 2_000_000))
    with mill_in(folder, spark) as mill:
        mill.execute(script)
        mill.drain()
    files = sorted((folder / "out").glob("[!_.]*"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(line["item"], line["price"]) for line in lines] == [(1, 20.0), (2, 30.0)]


def test_what_all_have_read_is_freed(spark: SparkSession, folder: Path) -> None:
    with Mill(spark, folder / "home", folder=folder, keep_s=0) as mill:
        mill.execute(BIDS)
        for number in range(5):
            write(folder, f"{number}.json", (1, 20.0, 1_000_000 * (number + 1)))
            mill.start()
            wait_for(mill, "mean", 1)
            mill.stop()
            mill.dispatcher.run_all()
            checkpoint_twice(mill)
            mill.retention.collect()
            assert all(len(log) == 0 for log in mill.home.logs.values())
