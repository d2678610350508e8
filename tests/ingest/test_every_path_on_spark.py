"""Order, lateness and silence of sources read by Spark equal those of other sources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from connectors.sender import eventually
from ingest.test_every_path import BEGIN_US, SECOND, by_the_rule, files, write_csv
from slicemill.api.mill import Mill
from slicemill.time import wall_clock_us
from support.engine import rows_as_table

ARRIVING = [9, 5, 12, 6, 11, 18, 13, 12, 12, 18, 4]
SLACK = 5
BATCHES = {
    "whole": [ARRIVING],
    "single": [[second] for second in ARRIVING],
}
# Workers read files themselves, unless an option of Spark's reader is set.
BY_SPARK = ", encoding 'UTF-8'"
ONE_BY_ONE = ", maxFilesPerTrigger '1'"


def test_batches_of_spark_have_the_order_of_their_files(spark: SparkSession, tmp_path: Path) -> None:
    admitted, late = by_the_rule(ARRIVING, SLACK)
    names = []
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        for form, trigger in (("csv", ""), ("csv", ONE_BY_ONE), ("frame", "")):
            for borders, batches in BATCHES.items():
                name = f"{form}_{borders}{'_slowly' if trigger else ''}"
                names.append(name)
                written = "json" if form == "frame" else form
                with files(written, name, tmp_path, BY_SPARK + trigger) as (source, send):
                    _send(partial(send, mill), batches)
                if form == "frame":
                    mill._ingest.frames[name] = (
                        spark.readStream.schema("n int, ts timestamp")
                        .json(str(tmp_path / name))
                        .where("n >= 0")
                    )
                    source = ""
                mill.execute(
                    f"CREATE STREAM {name} (n int, ts timestamp) ORDER BY ts SLACK {SLACK} SECONDS {source};"
                    f"CREATE QUERY good_{name} AS SELECT n FROM {name};"
                    f"CREATE QUERY late_{name} AS SELECT n FROM {name}_late;"
                )
        mill.drain()
        found = {name: [timed.row[0] for timed in query.rows()] for name, query in mill.queries.items()}
    for name in names:
        assert (found[f"good_{name}"], found[f"late_{name}"]) == (admitted, late), name


def _send(send: partial[None], batches: Sequence[Sequence[int]]) -> None:
    first = 0
    for batch in batches:
        send(first, batch)
        first += len(batch)


def test_a_silent_spark_stream_does_not_delay_other_streams(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        mill.execute(f"""
            CREATE STREAM a (n int, ts timestamp) ORDER BY ts;
            CREATE STREAM b (n int, ts timestamp) ORDER BY ts SLACK 1 SECOND SKEW 2 SECONDS
              USING csv OPTIONS (path 'b'{BY_SPARK});
            CREATE QUERY out AS SELECT n FROM a UNION ALL SELECT n FROM b;
        """)
        mill.start()
        begin = wall_clock_us()
        write_csv(tmp_path / "b.csv", 1, [(begin - BEGIN_US) // SECOND])
        (tmp_path / "b.csv").rename(tmp_path / "b" / "b.csv")
        query = mill.queries["out"]
        eventually(lambda: mill.streams["b"].fields.get("next_arrival") == 1)
        mill.feed("a", rows_as_table(mill, "a", [(2, begin + 1)]))
        eventually(lambda: [timed.row[0] for timed in query.rows()] == [1, 2])
        mill.check()
