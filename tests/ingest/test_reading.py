"""Time spent on a batch is no silence of its source: a slow machine makes no tuple late."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from slicemill.engine.mill import Mill, wall_clock_us

SECOND = 1_000_000
_PATIENCE_S = 60


def write(folder: Path, ts_s: int) -> None:
    """One bid in a file that appears whole."""
    hidden = folder / f".{ts_s}"
    hidden.write_text(json.dumps({"n": ts_s, "ts": ts_s * SECOND}))
    hidden.rename(folder / f"{ts_s}.json")


def until(mill: Mill, condition: Callable[[], bool]) -> None:
    """Wait for a condition, looking again when something is new in the logs."""
    ends = time.monotonic() + _PATIENCE_S
    while not condition():
        mill.check()
        assert time.monotonic() < ends
        with mill.dispatcher.changed:
            mill.dispatcher.changed.wait(0.05)


def test_tuples_of_a_slow_batch_are_not_late(spark: SparkSession, tmp_path: Path) -> None:
    bids = tmp_path / "bids"
    bids.mkdir()
    passed_us = 0
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(_PATIENCE_S)
        address = gate.getsockname()

        # Within the test, so that it travels to the workers by value.
        def held_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    with socket.create_connection(address) as connection:
                        connection.recv(1)  # until the test lets go
                yield batch

        rows = spark.readStream.schema("n int, ts bigint").json(str(bids))
        timed = rows.selectExpr("n", "timestamp_micros(ts) AS ts")
        with Mill(
            spark, tmp_path / "home", folder=tmp_path, clock=lambda: wall_clock_us() + passed_us
        ) as mill:
            mill.stream("bid", timed.mapInArrow(held_up, timed.schema), time="ts", skew="1 SECOND")
            mill.execute("CREATE QUERY all_bids AS SELECT n FROM bid")
            mill.start()
            bid = mill.intakes["bid"]
            write(bids, 10)
            gate.accept()[0].close()
            until(mill, lambda: len(bid.log.epochs()) == 1)
            write(bids, 11)
            under_way, _ = gate.accept()
            passed_us = 100 * SECOND
            assert bid.complete() <= 11 * SECOND
            under_way.close()
            until(mill, lambda: bid.counts.rows + bid.counts.late == 2)
            mill.stop()
            assert bid.counts.late == 0


def test_silence_is_promised_while_nothing_is_under_way(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    write(tmp_path / "bids", 10)
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        mill.execute("""
            CREATE STREAM bid (n int, ts timestamp) ORDER BY ts SKEW 1 SECOND
              USING json OPTIONS (path 'bids');
            CREATE QUERY all_bids AS SELECT n FROM bid
        """)
        mill.start()
        bid = mill.intakes["bid"]
        # The clock goes on from the bid's time, a second behind, though nothing comes.
        until(mill, lambda: bid.complete() >= 10_500_000)
        promised = bid.complete()
        mill.stop()
        assert bid.complete() - promised < SECOND, "who has stopped reading promises no more"
