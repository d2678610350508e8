"""One Structured Streaming query that brings the tuples of many streams into their logs (DESIGN §2).

Catalyst reads, checks, filters and projects; each row crosses to Python once, where a task sorts and writes
chunk files. What travels on through Spark is a line per chunk, of one schema for all streams, so that their
union is one query: each query would pay the floor of a micro-batch. The driver commits an epoch per stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.esl.catalog import Stream
from slicemill.esl.expression import Expr
from slicemill.esl.render import render
from slicemill.runtime.arrow_schema import to_arrow
from slicemill.runtime.cause import in_few_words
from slicemill.runtime.chunk import ChunkInfo, write_chunk
from slicemill.runtime.intake import Intake, packed
from slicemill.runtime.log import CHUNKS
from slicemill.runtime.source_frame import RAW, REASON, checked_frame, streaming_frame
from slicemill.runtime.stages import spent, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_META = (
    "stream string, bad boolean, path string, rows bigint, bytes bigint, min_ts bigint, max_ts bigint, "
    "waited_s double, packed_s double"
)


@dataclass(frozen=True, slots=True)
class Need:
    """What the queries need of a stream: rows on which the condition holds (None: all)."""

    condition: Expr | None = None


def start_ingest(
    frames: Mapping[str, DataFrame],
    intakes: Mapping[str, Intake],
    checkpoint: Path,
    poll_ms: int,
    notify: Callable[[], None],
) -> StreamingQuery:
    """Start reading; `notify` is called when something new is in the logs. `poll_ms` 0 reads to the end."""
    parts = [_packing(frame, intakes[name]) for name, frame in sorted(frames.items())]
    union = reduce(lambda left, right: left.union(right), parts)

    @in_few_words
    def commit(batch: DataFrame, batch_id: int) -> None:
        found: dict[tuple[str, bool], list[ChunkInfo]] = {}
        with stage("ingest job"):
            lines = batch.collect()
        for row in lines:
            spent({"ingest task: wait for rows": row.waited_s, "ingest task: pack": row.packed_s})
            chunk = ChunkInfo(row.path, row.rows, row.bytes, row.min_ts, row.max_ts)
            found.setdefault((row.stream, row.bad), []).append(chunk)
        with stage("ingest commit"):
            for name, intake in intakes.items():
                if name in frames:
                    intake.admit(batch_id, found.get((name, False), []), found.get((name, True), []))
        notify()

    writer = union.writeStream.foreachBatch(commit).option("checkpointLocation", str(checkpoint))
    if poll_ms:
        return writer.trigger(processingTime=f"{poll_ms} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def source_frame(
    spark: SparkSession, stream: Stream, need: Need, home: Path, folder: Path, given: DataFrame | None = None
) -> DataFrame:
    """A stream's source, or the frame that was given for it, checked, without rows that no query wants.

    Catalyst leaves those out; bad rows all stay.
    """
    frame = streaming_frame(spark, stream, home, folder) if given is None else checked_frame(given, stream)
    if need.condition is None:
        return frame
    return frame.where(f"{REASON} IS NOT NULL OR ({render(need.condition, 'spark')})")


def _packing(frame: DataFrame, intake: Intake) -> DataFrame:
    stream = intake.stream
    external = intake.late is not None
    write = _Packer(
        stream.name,
        intake.log.folder,
        intake.errors.folder,
        to_arrow(stream.schema),
        stream.time_column if external else None,
    )
    columns = [f"`{column.name}`" for column in stream.schema]
    return frame.select(*columns, RAW, REASON).mapInArrow(write, _META)


@dataclass(frozen=True, slots=True)
class _Packer:
    """Runs in a task: all rows of a partition become at most one chunk of good rows and one of bad rows."""

    stream: str
    folder: Path
    errors_folder: Path
    columns: pa.Schema
    time_column: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began = time.perf_counter()
        arrived = [batch for batch in batches if batch.num_rows]
        if not arrived:
            return
        waited_s = time.perf_counter() - began
        table = pa.Table.from_batches(arrived)
        reasons = table.column(REASON)
        if reasons.null_count < len(reasons):
            bad = table.filter(pc.is_valid(reasons)).select([RAW, REASON]).rename_columns(["raw", "reason"])
            yield self._line(True, write_chunk(self.errors_folder, CHUNKS, bad), 0.0, 0.0)
            table = table.filter(pc.is_null(reasons))
        if table.num_rows:
            good = table.select(self.columns.names).cast(self.columns)
            chunk = write_chunk(self.folder, CHUNKS, packed(good, self.time_column))
            yield self._line(False, chunk, waited_s, time.perf_counter() - began - waited_s)

    def _line(self, bad: bool, chunk: ChunkInfo, waited_s: float, packed_s: float) -> pa.RecordBatch:
        described = (self.stream, bad, chunk.path, chunk.rows, chunk.bytes, chunk.min_ts, chunk.max_ts)
        types = (pa.string(), pa.bool_(), pa.string(), *[pa.int64()] * 4, *[pa.float64()] * 2)
        values = (*described, waited_s, packed_s)
        names = [part.split()[0] for part in _META.split(", ")]
        return pa.record_batch([pa.array([v], t) for v, t in zip(values, types, strict=True)], names)
