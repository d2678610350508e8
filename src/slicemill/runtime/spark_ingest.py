"""Ingest through Spark: Structured Streaming for streams without a native reader.

    any format, any DataFrame ──► Catalyst: checks, projection ──► tasks write raw extents
                   ──► the driver sends their positions to the worker of the stream ──► intake

Spark commits a batch after the journal has recorded the batch. The offset of the stream is the number of the
batch, so a batch that Spark replays is recognized.

The following tells slicemill that a stream has no new rows. A batch contains all rows that had arrived when
Spark polled the source, and Spark polls again after the batch. If there are no new rows, Spark reports the
time of its poll (`_IdleListener`).

Each stream has its own Spark query: the checkpoint of a query belongs to a fixed set of sources, and the
failure of a source must not stop other sources. A failed source is retried with back-off.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from slicemill.connectors.spark.checks import PLACE, RAW, REASON
from slicemill.connectors.spark.open import check_frame, streaming_frame
from slicemill.errors import SlicemillError
from slicemill.ingest.intake import ONLY
from slicemill.ingest.stream import HandedRows
from slicemill.metrics.profiling import stage
from slicemill.plan.projection_pushdown import SourceProjection
from slicemill.runtime.spark_session import STOP_S, cause, raise_cause_only
from slicemill.runtime.streams import Supply
from slicemill.storage.filesystem import LOCAL, ensure_folder, unique_name
from slicemill.storage.segments import Extent, SegmentWriter
from slicemill.time import SECOND_US, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from slicemill.runtime.driver import Dispatcher
    from slicemill.runtime.streams import RunningStream

_LOGGER = logging.getLogger("slicemill")

_CHECKPOINT = "checkpoint"
_TEND_EVERY_S = 0.25
# Interval in milliseconds at which Spark reports that it has no new rows, and the name of the setting.
_IDLE_MS, _IDLE_SETTING = 200, "spark.sql.streaming.noDataProgressEventInterval"
# Schema of the record that describes an extent (part of a file) written by a Spark task.
_LINE = "bad boolean, segment string, position bigint, length bigint, rows bigint, crc bigint"
_NAMES = [part.split()[0] for part in _LINE.split(", ")]
_TYPES = (pa.bool_(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.int64())


@dataclass(frozen=True, slots=True)
class RawWriter:
    """Function of a Spark task that writes good and bad rows to separate parts of a file."""

    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived = [batch for batch in batches if batch.num_rows]
        if not arrived:
            return
        table = pa.Table.from_batches(arrived)
        is_bad = pc.is_valid(table.column(REASON))
        bad = table.filter(is_bad).select([RAW, REASON]).rename_columns(["raw", "reason"])
        good = table.filter(pc.invert(is_bad)).drop_columns([RAW, REASON])
        writer = SegmentWriter(self.folder, unique_name())
        for rows, of_bad in ((good, False), (bad, True)):
            if rows.num_rows:
                values = (of_bad, *writer.append(rows))
                arrays = [pa.array([value], type_) for value, type_ in zip(values, _TYPES, strict=True)]
                yield pa.record_batch(arrays, _NAMES)
        writer.release()


@dataclass(slots=True)
class _LastPoll:
    """Lower bound of the time of Spark's last poll of a stream."""

    at_us: int


class _IdleListener(StreamingQueryListener):
    """Listener that tells a stream when a poll by Spark found no new rows."""

    def __init__(
        self, spark: SparkSession, looked: _LastPoll, stream: RunningStream, notify: Callable[[], None]
    ) -> None:
        self.session = spark
        self.run: str | None = None
        self._looked = looked
        self._stream = stream
        self._notify = notify

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - name given by Spark
        if str(event.runId) != self.run:
            return
        began_us = round(datetime.fromisoformat(event.timestamp).timestamp() * SECOND_US)
        self._looked.at_us = max(self._looked.at_us, began_us)
        self._stream.record_empty_poll(began_us)
        self._notify()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: the caller starts the query."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Do nothing: batches arrive through `foreachBatch`."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: `retry_due` polls for errors."""


@dataclass(slots=True)
class _IngestQuery:
    """Streaming query of Spark that reads one stream.

    `query` is None while a failed source awaits its retry.
    """

    stream: RunningStream
    need: SourceProjection
    query: StreamingQuery | None = None
    listener: _IdleListener | None = None
    failing: bool = False  # True if the source has failed and no rows have been read since

    def stop(self) -> None:
        """Stop the Spark query that reads the stream.

        A Spark query that does not end in time is abandoned.
        """
        try:
            if self.query is not None:
                self.query.stop()
        except Exception as problem:
            if "Timeout" not in str(problem):
                raise
            _LOGGER.warning(
                "Spark did not end its query that reads %s within %s s, and is not waited for any longer; "
                "restart slicemill if the stream gets no rows from now on",
                self.stream.name,
                STOP_S,
            )
        finally:
            self._forget()

    def failed(self, problem: BaseException, now: int) -> None:
        self._forget()
        self.failing = True
        self.stream.record_source_failure(cause(problem), now)

    def _forget(self) -> None:
        if self.listener is not None and self.query is not None:
            self.listener.session.streams.removeListener(self.listener)
        self.query = self.listener = None


@dataclass(slots=True)
class SparkIngest:
    """All streaming queries of Spark that read streams for one engine.

    `frames` are the streaming DataFrames that the program has declared.
    """

    spark: SparkSession | None
    folder: Path
    dispatcher: Dispatcher
    clock: Callable[[], int]
    frames: dict[str, DataFrame] = field(default_factory=dict)
    _running: dict[str, _IngestQuery] = field(default_factory=dict)
    _poll_ms: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stopped: threading.Event | None = None

    def start(self, streams: Mapping[str, RunningStream], poll_ms: int) -> None:
        """Start the Spark queries of all streams that are read through Spark.

        A Spark query that already reads the needed rows and columns continues.
        """
        with self._lock:
            self._poll_ms = poll_ms
            for name, stream in streams.items():
                known = self._running.get(name)
                if stream.supply is not Supply.SPARK or (known and known.need == stream.plan.need):
                    continue
                if known is not None:
                    known.stop()
                reading = self._running[name] = _IngestQuery(stream, stream.plan.need)
                self._begin(reading, self.clock())
            if self._running and poll_ms and self._stopped is None:
                self._stopped = threading.Event()
                threading.Thread(
                    target=self._retry_until, args=(self._stopped,), name="slicemill-ingest", daemon=True
                ).start()

    def is_outdated(self, needs: Mapping[str, SourceProjection]) -> bool:
        """Return True if a Spark query does not read rows or columns that are needed now."""
        return any(reading.need != needs[name] for name, reading in self._running.items())

    def retry_due(self, now: int) -> None:
        """Record sources that have failed, and retry sources whose back-off is over."""
        with self._lock:
            for reading in self._running.values():
                if reading.query is not None:
                    problem = reading.query.exception()
                    if problem is not None:
                        reading.failed(problem, now)
                    elif reading.failing and reading.query.lastProgress is not None:
                        reading.failing = False
                        reading.stream.record_source_success()
                elif reading.stream.retry_us <= now:
                    self._begin(reading, now)

    def _retry_until(self, stopped: threading.Event) -> None:
        while not stopped.wait(_TEND_EVERY_S):
            self.retry_due(self.clock())

    def read_to_the_end(self, streams: Mapping[str, RunningStream]) -> None:
        """Read all available rows of all sources, and record errors in the streams."""
        self.stop()
        self.start(streams, 0)
        while any(reading.query is not None and reading.query.isActive for reading in self._running.values()):
            self.dispatcher.admit_handed()
            with self.dispatcher.changed:
                self.dispatcher.changed.wait(0.02)
        self.dispatcher.admit_handed()
        for reading in self._running.values():
            problem = None if reading.query is None else reading.query.exception()
            if problem is not None:
                reading.failed(problem, self.clock())
            elif not reading.failing:
                reading.stream.record_source_success()
        self._running.clear()

    def stop(self) -> None:
        if self._stopped is not None:
            self._stopped.set()
            self._stopped = None
        with self._lock:
            for reading in self._running.values():
                reading.stop()
            self._running.clear()

    def _session(self) -> SparkSession:
        if self.spark is None:
            raise SlicemillError("a source that only Spark can read needs a session; give the mill one")
        return self.spark

    def _rows(self, stream: RunningStream) -> DataFrame:
        """Return a DataFrame whose Spark tasks write rows to files and return their positions there."""
        declared = stream.stream
        given = self.frames.get(stream.name.lower())
        frame = (
            check_frame(given, declared)
            if given is not None
            else streaming_frame(self._session(), declared, self.folder)
        )
        columns = [f"`{name}`" for name in stream.plan.read]
        places = [name for name in PLACE if name in frame.columns]
        ensure_folder(LOCAL, stream.feed_folder)
        rows = frame.select(*columns, RAW, REASON, *places)
        return rows.mapInArrow(RawWriter(stream.feed_folder), _LINE)

    def _begin(self, reading: _IngestQuery, now: int) -> None:
        """Start the Spark query that reads a stream.

        If the declaration is wrong, the first start raises the error.
        """
        try:
            self._start(reading)
        # Every source has its own types of exceptions.
        except Exception as problem:
            if isinstance(problem, SlicemillError) and not reading.failing:
                raise
            reading.failed(problem, now)

    def _start(self, reading: _IngestQuery) -> None:
        stream = reading.stream
        looked = _LastPoll(wall_clock_us())
        commit = _committer(stream, looked, self.dispatcher.notify, looks_again=bool(self._poll_ms))
        checkpoint = str(stream.plan.spool / _CHECKPOINT)
        writer = self._rows(stream).writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint)
        if not self._poll_ms:
            reading.query = writer.trigger(availableNow=True).start()
        else:
            timed = writer.trigger(processingTime=f"{self._poll_ms} milliseconds")
            if stream.stream.skew_us is None:
                # A stream without SKEW does not need to know whether its source has new rows.
                reading.query = timed.start()
            else:
                reading.query, reading.listener = self._start_with_listener(timed, looked, stream)
        stream.through_spark = reading.query

    def _start_with_listener(
        self, timed: DataStreamWriter, looked: _LastPoll, stream: RunningStream
    ) -> tuple[StreamingQuery, _IdleListener]:
        """Start a Spark query with a listener for its reports of no new rows."""
        spark = self._session()
        listener = _IdleListener(spark, looked, stream, self.dispatcher.notify)
        spark.streams.addListener(listener)
        with _setting(spark, _IDLE_SETTING, str(_IDLE_MS)):
            query = timed.start()
        listener.run = query.runId
        return query, listener


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the Spark session while a Spark query starts.

    The Spark query keeps the value.
    """
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _committer(
    stream: RunningStream, looked: _LastPoll, notify: Callable[[], None], *, looks_again: bool
) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls with each batch of a stream (`foreachBatch`).

    The function passes each batch to the driver and waits for its commit.
    """

    @raise_cause_only
    def commit(batch: DataFrame, batch_id: int) -> None:
        began_us = wall_clock_us()
        with stage("ingest job"):
            lines = batch.collect()
        extents: dict[bool, list[Extent]] = {False: [], True: []}
        for line in lines:
            extents[line.bad].append(Extent(line.segment, line.position, line.length, line.rows, line.crc))
        good, bad = tuple(extents[False]), tuple(extents[True])
        stream.hand(
            HandedRows(
                folder=stream.feed_folder,
                rows=good,
                errors=bad,
                offset=batch_id,
                arrival_us=began_us,
                seen_us=looked.at_us,
                order=PLACE,
            )
        )
        notify()
        stream.wait_committed(ONLY, batch_id)
        if looks_again:
            looked.at_us = wall_clock_us()

    return commit
