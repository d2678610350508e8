"""One Structured Streaming query that brings the tuples of many streams into their logs (DESIGN §2).

Catalyst reads, checks, filters and projects; each row crosses to Python once, where a task sorts and writes
chunk files (see `packing`). What travels on through Spark is a line per chunk, of one schema for all streams,
so that their union is one query: each query would pay the floor of a micro-batch. The driver commits an epoch
per stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from slicemill.connectors.spark.direct import DirectFiles, direct_files
from slicemill.connectors.spark.frame import RAW, REASON, checked_frame, streaming_frame
from slicemill.engine.cause import in_few_words
from slicemill.esl.render import render
from slicemill.ingest.intake import Arrived, Intake
from slicemill.ingest.needs import Need
from slicemill.ingest.packing import BAD, GOOD, LEFT, LINE, PASSED, Packer
from slicemill.ingest.reading import Reading
from slicemill.metrics.stages import spent, stage
from slicemill.storage.chunk import ChunkInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream's source: lines about the chunks that its tasks write, as they come."""

    lines: DataFrame
    packer: Packer
    files: DirectFiles | None = None

    def read_left(self, paths: Sequence[str], arrived: Arrived) -> None:
        """Files that tasks have left to Catalyst."""
        assert self.files is not None
        frame = _by_catalyst(self.files.by_catalyst(paths), self.packer)
        for row in frame.collect():
            _note(row, arrived)
        self.note_passed(frame._jdf.queryExecution(), arrived)

    def note_passed(self, execution: Any, arrived: Arrived) -> None:
        """How far time has come by all rows that Catalyst read, as it has observed."""
        found = execution.observedMetrics().get(self.packer.stream)
        if found.isDefined():
            arrived.reach(found.get().get(0))


def open_feed(
    spark: SparkSession, intake: Intake, need: Need, folder: Path, given: DataFrame | None = None
) -> Feed:
    """A stream's source, or the frame that was given for it, without rows and columns that no query wants."""
    stream = intake.stream
    time_column = stream.time_column if intake.late is not None else None
    folders = intake.log.folder, intake.errors.folder
    packer = Packer(stream.name, *folders, stream.schema, time_column, need)
    if given is not None:
        return Feed(_by_catalyst(checked_frame(given, stream), packer), packer)
    files = direct_files(spark, stream, folder)
    if files is not None:
        return Feed(files.paths().mapInArrow(packer.from_files, LINE), packer, files)
    return Feed(_by_catalyst(streaming_frame(spark, stream, folder), packer), packer)


def _by_catalyst(frame: DataFrame, packer: Packer) -> DataFrame:
    """Checked rows to chunks; bad rows all stay."""
    if packer.passes_by is not None:
        ts = F.unix_micros(F.col(packer.passes_by))
        frame = frame.observe(packer.stream, F.max(F.when(F.col(REASON).isNull(), ts)).alias("reached"))
    condition = packer.need.condition
    if condition is not None:
        frame = frame.where(f"{REASON} IS NOT NULL OR ({render(condition, 'spark')})")
    columns = [f"`{name}`" for name in packer.read]
    return frame.select(*columns, RAW, REASON).mapInArrow(packer.from_catalyst, LINE)


def start_ingest(
    feeds: Mapping[str, Feed],
    intakes: Mapping[str, Intake],
    checkpoint: Path,
    poll_ms: int,
    clock: Callable[[], int],
    notify: Callable[[], None],
) -> StreamingQuery:
    """Start reading; `notify` is called when something new is in the logs. `poll_ms` 0 reads to the end."""
    reading = Reading(clock, poll_ms * 1_000)
    for name in feeds:
        intakes[name].seen = reading.seen
    union = reduce(lambda left, right: left.union(right), (feed.lines for _, feed in sorted(feeds.items())))

    started: Future[StreamingQuery] = Future()

    @in_few_words
    def commit(batch: DataFrame, batch_id: int) -> None:
        with stage("ingest job"):
            lines = batch.collect()
        arrived = {name: Arrived() for name in feeds}
        for row in lines:
            _note(row, arrived[row.stream])
        execution = started.result()._jsq.streamingQuery().lastExecution()
        began = reading.began(execution)
        for name, feed in feeds.items():
            feed.note_passed(execution, arrived[name])
            left = [row.path for row in lines if row.stream == name and row.kind == LEFT]
            if left:
                with stage("ingest job, files left to Catalyst"):
                    feed.read_left(left, arrived[name])
        with stage("ingest commit"):
            for name, found in arrived.items():
                intakes[name].admit(batch_id, found, by=began)
        reading.done(began)
        notify()

    writer = union.writeStream.foreachBatch(commit).option("checkpointLocation", str(checkpoint))
    if poll_ms:
        writer = writer.trigger(processingTime=f"{poll_ms} milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    reading.begin(query)
    started.set_result(query)
    return query


def _note(row: Row, arrived: Arrived) -> None:
    spent({"ingest task: get rows": row.waited_s, "ingest task: pack": row.packed_s})
    chunk = ChunkInfo(row.path, row.rows, row.bytes, row.min_ts, row.max_ts, tuple(row.panes.split()))
    if row.kind == GOOD:
        arrived.chunks.append(chunk)
    elif row.kind == BAD:
        arrived.errors.append(chunk)
    elif row.kind == PASSED:
        arrived.reach(row.max_ts)
