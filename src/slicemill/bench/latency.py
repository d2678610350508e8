"""How long after its arrival a row's result is there, for small files that arrive steadily.

A file's rows all have its number, and the time of its arrival is noted: what comes out says when it came in.
slicemill runs one filter; its results are seen by a subscriber, after their commit. Spark counts rows by key,
with state, to its noop sink, as fast as it can trigger; a batch is done when its progress says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from slicemill.bench.bids import SCHEMA, Feed
from slicemill.bench.rivals import MillSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_PATIENCE_S = 60


def arrivals(feed: Feed, files: Sequence[Path], every_s: float) -> dict[int, float]:
    """Let files arrive one by one, at even intervals; when each did, by its number."""
    began, came = time.time(), {}
    for index, path in enumerate(files):
        time.sleep(max(0.0, began + index * every_s - time.time()))
        came[int(path.stem)] = time.time()
        feed.arrive([path])
    return came


def mill_latencies_ms(
    spark: SparkSession, feed: Feed, files: Sequence[Path], every_s: float, home: Path
) -> list[float]:
    """From arrival to result, for each file, in order of arrival."""
    side = MillSide(spark, feed.folder, 1000, ["price > 0"], home)
    side.start()
    seen: dict[int, float] = {}

    def receive(table: pa.Table) -> None:
        for number in table.column("file").unique().to_pylist():
            seen.setdefault(number, time.time())

    side.mill.queries["q0"].subscribe(receive)
    came = arrivals(feed, files, every_s)
    _wait_until_all(seen, came)
    side.stop()
    return [1000 * (seen[number] - came[number]) for number in came]


def native_latencies_ms(
    spark: SparkSession, feed: Feed, files: Sequence[Path], every_s: float, checkpoint: Path
) -> tuple[list[float], list[float]]:
    """From arrival to the end of its batch for each file, and how long each batch took, in order."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1000).parquet(str(feed.folder))
    counted = frame.observe("read", F.collect_set("file").alias("files")).groupBy("auction").count()
    writer = counted.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        came = arrivals(feed, files, every_s)
        query.processAllAvailable()
        batches = [batch for batch in query.recentProgress if batch.numInputRows]
    finally:
        query.stop()
    done = _done_at(batches)
    latencies = [1000 * (done[number] - came[number]) for number in came]
    return latencies, [batch.durationMs["triggerExecution"] for batch in batches]


def _done_at(batches: Iterable[StreamingQueryProgress]) -> dict[int, float]:
    done = {}
    for batch in batches:
        ended = datetime.fromisoformat(batch.timestamp).timestamp()
        ended += batch.durationMs["triggerExecution"] / 1000
        done.update(dict.fromkeys(batch.observedMetrics["read"].files, ended))
    return done


def _wait_until_all(seen: Mapping[int, float], came: Mapping[int, float]) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while len(seen) < len(came) and time.monotonic() < ends:
        time.sleep(0.01)


def settled_median(values: Sequence[float]) -> float:
    """The median without the first third: a query's first batches are spent on starting it."""
    return statistics.median(values[len(values) // 3 :])
