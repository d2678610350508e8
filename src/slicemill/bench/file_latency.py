"""How long after its arrival a row's result is there, for small files that arrive steadily.

A file's rows all have its number, and the time of its arrival is noted: what comes out says when it came in.
slicemill runs one filter; its results are seen by a subscriber, after their commit. Spark counts rows by key,
with state, to its noop sink; a batch is done when its progress says so. Both poll as often, are up at the
same time and get files in turns, in the same rhythm, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from slicemill.bench.bids import SCHEMA, Feed
from slicemill.bench.rivals import POLL_MS, MillSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds from arrival to result, file by file, and of each native batch; in order."""

    mill: list[float]
    native: list[float]
    native_batches: list[float]


def latencies(spark: SparkSession, folder: Path, files: Sequence[Path], every_s: float) -> Latencies:
    """Let a file arrive every so often, in turns on both sides: each gets all of them."""
    ours, theirs = Feed(folder / "in-mill"), Feed(folder / "in-native")
    side = MillSide(spark, ours.folder, len(files), ["price > 0"], folder / "home")
    side.start()
    seen: dict[int, float] = {}

    def receive(table: pa.Table) -> None:
        for number in table.column("file").unique().to_pylist():
            seen.setdefault(number, time.time())

    side.mill.queries["q0"].subscribe(receive)
    native = _native_count(spark, theirs.folder, folder / "checkpoint")
    try:
        came = _arrivals((ours, theirs), files, every_s)
        native.processAllAvailable()
        batches = [batch for batch in native.recentProgress if batch.numInputRows]
        _wait_until_all(seen, files)
    finally:
        native.stop()
        side.stop()
    done = _done_at(batches)
    return Latencies(
        [1000 * (seen[number] - at) for number, at in came[0].items()],
        [1000 * (done[number] - at) for number, at in came[1].items()],
        [batch.durationMs["triggerExecution"] for batch in batches],
    )


def _arrivals(feeds: Sequence[Feed], files: Sequence[Path], every_s: float) -> list[dict[int, float]]:
    """When each file came, by its number, for each feed."""
    came: list[dict[int, float]] = [{} for _ in feeds]
    turns = [(feed, times, path) for path in files for feed, times in zip(feeds, came, strict=True)]
    began = time.time()
    for turn, (feed, times, path) in enumerate(turns):
        time.sleep(max(0.0, began + turn * every_s - time.time()))
        times[int(path.stem)] = time.time()
        feed.arrive([path])
    return came


def _native_count(spark: SparkSession, folder: Path, checkpoint: Path) -> StreamingQuery:
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.readStream.schema(SCHEMA).parquet(str(folder))
    counted = frame.observe("read", F.collect_set("file").alias("files")).groupBy("auction").count()
    writer = counted.writeStream.outputMode("update").format("noop")
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime=f"{POLL_MS} milliseconds").start()


def _done_at(batches: Iterable[StreamingQueryProgress]) -> dict[int, float]:
    done = {}
    for batch in batches:
        ended = datetime.fromisoformat(batch.timestamp).timestamp()
        ended += batch.durationMs["triggerExecution"] / 1000
        done.update(dict.fromkeys(batch.observedMetrics["read"].files, ended))
    return done


def _wait_until_all(seen: Mapping[int, float], files: Sequence[Path]) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while len(seen) < len(files) and time.monotonic() < ends:
        time.sleep(0.01)


def settled(values: Sequence[float]) -> list[float]:
    """Without the first third: a query's first batches are spent on starting it."""
    return list(values[len(values) // 3 :])
