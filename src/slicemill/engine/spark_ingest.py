"""Ingest through Spark: one Structured Streaming query reads the streams that have no reader of ours.

    any format, any DataFrame ──► Catalyst: checks, projection ──► tasks write raw extents
                   ──► the driver hands them to the worker that reads the stream ──► intake

Spark notes a batch as done when the journal has it; a batch that it replays is known by its number, which is
the stream's offset. A batch has what had come when Spark looked, and Spark looks again when the batch is
done: what a stream has nothing of in a batch had not come by then. Where there is no batch, Spark says when
it looked (`_Idle`). So a stream is known to be silent. A checkpoint of Spark's belongs to one set of sources,
so streams that are first read together stay together, for good: a group. A stream that is declared later gets
a group of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
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

from slicemill.connectors.spark.frame import PLACE, RAW, REASON, checked_frame, streaming_frame
from slicemill.engine.cause import cause, in_few_words
from slicemill.engine.streams import Supply
from slicemill.errors import SlicemillError
from slicemill.ingest.intake import ONLY
from slicemill.ingest.stream import HandedRows
from slicemill.metrics.stages import stage
from slicemill.plan.needs import Need
from slicemill.storage.files import LOCAL, ensure_folder, unique_name, write_whole
from slicemill.storage.segments import Extent, SegmentWriter
from slicemill.time import US, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slicemill.engine.dispatcher import Dispatcher
    from slicemill.engine.streams import RunningStream

_GROUPS = "groups.json"
# How often Spark says that it has found nothing, in milliseconds, and the setting for it.
_IDLE_MS, _IDLE_SETTING = 200, "spark.sql.streaming.noDataProgressEventInterval"
# What a task says of the extents that it has written.
_LINE = "stream string, bad boolean, segment string, position bigint, length bigint, rows bigint"
_NAMES = [part.split()[0] for part in _LINE.split(", ")]
_TYPES = (pa.string(), pa.bool_(), pa.string(), pa.int64(), pa.int64(), pa.int64())


@dataclass(frozen=True, slots=True)
class RawWriter:
    """Writes the rows of a Spark partition as raw extents, good and bad ones apart."""

    stream: str
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
                values = (self.stream, of_bad, *writer.append(rows))
                arrays = [pa.array([value], type_) for value, type_ in zip(values, _TYPES, strict=True)]
                yield pa.record_batch(arrays, _NAMES)
        writer.release()


@dataclass(slots=True)
class _Looked:
    """When Spark looked for rows of a group last, or earlier."""

    at_us: int


class _Idle(StreamingQueryListener):
    """Tells the streams of a group when Spark has looked and found nothing."""

    def __init__(
        self, looked: _Looked, streams: Mapping[str, RunningStream], notify: Callable[[], None]
    ) -> None:
        self.run: str | None = None
        self._looked = looked
        self._streams = streams
        self._notify = notify

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - as Spark calls it
        if str(event.runId) != self.run:
            return
        began_us = round(datetime.fromisoformat(event.timestamp).timestamp() * US)
        self._looked.at_us = max(self._looked.at_us, began_us)
        for stream in self._streams.values():
            stream.found_nothing(began_us)
        self._notify()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Whoever starts it knows."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Its batches come by `foreachBatch`."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """`failure` asks for it."""


@dataclass(slots=True)
class _Group:
    query: StreamingQuery
    needs: Mapping[str, Need]
    listener: _Idle | None

    def stop(self, spark: SparkSession) -> None:
        self.query.stop()
        if self.listener is not None:
            spark.streams.removeListener(self.listener)


@dataclass(slots=True)
class SparkIngest:
    """All ingest queries of a mill. `frames` are those that a program has given for streams."""

    spark: SparkSession | None
    sources: Path
    folder: Path
    dispatcher: Dispatcher
    frames: dict[str, DataFrame] = field(default_factory=dict)
    _running: dict[int, _Group] = field(default_factory=dict)

    def start(self, streams: Mapping[str, RunningStream], poll_ms: int) -> None:
        """Read every stream that comes through Spark; groups that read already what is needed go on."""
        for number, names in enumerate(self._groups(streams)):
            needs = {name: streams[name].plan.need for name in names}
            known = self._running.get(number)
            if known is not None:
                if known.needs == needs and known.query.isActive:
                    continue
                known.stop(self._session())
            feeds = {name: self._rows(streams[name]) for name in names}
            query, listener = self._started(number, feeds, {name: streams[name] for name in names}, poll_ms)
            self._running[number] = _Group(query, needs, listener)
            for name in names:
                streams[name].through_spark = query

    def outdated(self, needs: Mapping[str, Need]) -> bool:
        """Does some query leave out what is needed from now on?"""
        return any(
            group.needs[name] != needs[name] for group in self._running.values() for name in group.needs
        )

    def read_to_the_end(self, streams: Mapping[str, RunningStream]) -> None:
        """Read all that the sources hold now."""
        self.stop()
        self.start(streams, 0)
        for group in self._running.values():
            while group.query.isActive:
                self.dispatcher.admit_handed()
                with self.dispatcher.changed:
                    self.dispatcher.changed.wait(0.02)
            _raise_failure(group.query)
        self._running.clear()

    def stop(self) -> None:
        for group in self._running.values():
            group.stop(self._session())
        self._running.clear()

    def failure(self) -> str | None:
        """Why an ingest query has stopped by itself, if one has."""
        for group in self._running.values():
            problem = group.query.exception()
            if problem is not None:
                return cause(problem)
        return None

    def _session(self) -> SparkSession:
        if self.spark is None:
            raise SlicemillError("a source that only Spark can read needs a session; give the mill one")
        return self.spark

    def _rows(self, stream: RunningStream) -> DataFrame:
        """A line for each extent that the stream's tasks write."""
        declared = stream.stream
        given = self.frames.get(stream.name.lower())
        frame = (
            checked_frame(given, declared)
            if given is not None
            else streaming_frame(self._session(), declared, self.folder)
        )
        columns = [f"`{name}`" for name in stream.plan.read]
        places = [name for name in PLACE if name in frame.columns]
        ensure_folder(LOCAL, stream.handed_folder)
        return frame.select(*columns, RAW, REASON, *places).mapInArrow(
            RawWriter(stream.name, stream.handed_folder), _LINE
        )

    def _started(
        self, number: int, feeds: Mapping[str, DataFrame], streams: Mapping[str, RunningStream], poll_ms: int
    ) -> tuple[StreamingQuery, _Idle | None]:
        union = reduce(lambda left, right: left.union(right), (feed for _, feed in sorted(feeds.items())))
        looked = _Looked(wall_clock_us())
        commit = _committer(streams, looked, self.dispatcher.notify, looks_again=bool(poll_ms))
        checkpoint = self.sources / f"checkpoint-{number}"
        writer = union.writeStream.foreachBatch(commit).option("checkpointLocation", str(checkpoint))
        if not poll_ms:
            return writer.trigger(availableNow=True).start(), None
        timed = writer.trigger(processingTime=f"{poll_ms} milliseconds")
        if all(stream.stream.skew_us is None for stream in streams.values()):
            return timed.start(), None  # nobody asks how long a stream has been silent
        spark = self._session()
        listener = _Idle(looked, streams, self.dispatcher.notify)
        spark.streams.addListener(listener)
        with _setting(spark, _IDLE_SETTING, str(_IDLE_MS)):
            query = timed.start()
        listener.run = query.runId
        return query, listener

    def _groups(self, streams: Mapping[str, RunningStream]) -> list[list[str]]:
        path = self.sources / _GROUPS
        groups: list[list[str]] = json.loads(path.read_text()) if path.exists() else []
        known = {name for group in groups for name in group}
        missing = sorted(known - set(streams))
        if missing:
            raise SlicemillError(
                f"this home reads {', '.join(missing)} together with other streams; declare it, with or "
                "without a query that reads it, or use a new home"
            )
        supplied = (name for name, stream in streams.items() if stream.supply is Supply.SPARK)
        fresh = sorted(name for name in supplied if name not in known)
        if fresh:
            groups.append(fresh)
            ensure_folder(LOCAL, self.sources)
            write_whole(LOCAL, path, json.dumps(groups).encode())
        return groups


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of the session while a query starts: the query keeps it."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _committer(
    streams: Mapping[str, RunningStream], looked: _Looked, notify: Callable[[], None], *, looks_again: bool
) -> Callable[[DataFrame, int], None]:
    """Hands the batches of a group over; without `looks_again` Spark has looked once, when it was started."""

    @in_few_words
    def commit(batch: DataFrame, batch_id: int) -> None:
        began_us = wall_clock_us()
        with stage("ingest job"):
            lines = batch.collect()
        for name, stream in streams.items():
            extents: dict[bool, list[Extent]] = {False: [], True: []}
            for line in lines:
                if line.stream == name:
                    extents[line.bad].append(Extent(line.segment, line.position, line.length, line.rows))
            good, bad = tuple(extents[False]), tuple(extents[True])
            stream.hand(HandedRows(stream.handed_folder, good, bad, batch_id, began_us, looked.at_us, PLACE))
        notify()
        for stream in streams.values():
            stream.wait_committed(ONLY, batch_id)
        if looks_again:
            looked.at_us = wall_clock_us()

    return commit


def _raise_failure(query: StreamingQuery) -> None:
    problem = query.exception()
    if problem is not None:
        raise SlicemillError(f"reading the sources stopped: {cause(problem)}")
