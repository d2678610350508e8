"""Time spent on a batch is no silence of its source: a slow machine makes no tuple late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from slicemill.runtime.mill import Mill


def test_tuples_of_a_slow_batch_are_not_late(spark: SparkSession, tmp_path: Path) -> None:
    # Spark's source of ticks brings whole seconds: one that has just begun comes a second late by itself.
    # Within the test, so that it travels to the workers by value.
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                time.sleep(2.5)
            yield batch

    ticks = spark.readStream.format("rate").options(rowsPerSecond=100, numPartitions=1).load()
    slow = ticks.mapInArrow(slowly, ticks.schema)
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        mill.stream("tick", slow, time="timestamp", skew="1.2 SECONDS")
        mill.execute("CREATE QUERY ticks AS SELECT value FROM tick")
        mill.start()
        tick = mill.intakes["tick"]
        deadline = time.monotonic() + 60
        while len(tick.log.epochs()) < 3 and time.monotonic() < deadline:
            tick.complete()  # as a unit does that waits for time to pass
            time.sleep(0.1)
        mill.stop()
        assert len(tick.log.epochs()) >= 3
        assert tick.counts.late == 0


def test_silence_is_promised_while_nothing_is_under_way(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    (tmp_path / "bids" / "1.json").write_text('{"n": 1, "ts": 10000000}')
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        mill.execute("""
            CREATE STREAM bid (n int, ts timestamp) ORDER BY ts SKEW 1 SECOND
              USING json OPTIONS (path 'bids');
            CREATE QUERY all_bids AS SELECT n FROM bid
        """)
        mill.start()
        deadline = time.monotonic() + 60
        # The clock goes on from the bid's time, a second behind, though nothing comes.
        while mill.intakes["bid"].complete() < 10_500_000 and time.monotonic() < deadline:
            time.sleep(0.05)
        promised = mill.intakes["bid"].complete()
        mill.stop()
        assert promised >= 10_500_000
        assert mill.intakes["bid"].complete() - promised < 1_000_000, (
            "who has stopped reading promises no more"
        )
