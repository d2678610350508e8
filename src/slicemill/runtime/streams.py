"""Running stream in the driver: its polls, commits and watermark.

The journal holds the persistent state of a stream: the position in its source (`offsets`) and the fields of
the intake (`ingest.intake`), such as the watermark. A worker reads the rows, separates late rows, and appends
all rows to the logs of the stream.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slicemill.catalog.catalog import ERROR_SCHEMA, ERRORS, HELD, LATE, Catalog, Stream
from slicemill.columns.arrow_schema import to_arrow
from slicemill.connectors.files.reader import is_same_position
from slicemill.connectors.origin import is_socket, origin_of
from slicemill.connectors.registry import new_rows_check
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.parquet import check_columns, check_table
from slicemill.ingest.intake import ONLY, slack_line
from slicemill.ingest.stream import Announced, HandedRows, StreamPlan
from slicemill.ingest.watermarks import (
    ENDED,
    HELD_FROM,
    WATERMARK,
    side_watermark,
    time_of_watermark,
    watermark,
)
from slicemill.metrics.due_times import TimeLine, TimeMoments
from slicemill.operators.graph import QueryGraph
from slicemill.operators.specs import Source
from slicemill.plan.partitioning import Exchange
from slicemill.plan.projection_pushdown import SourceProjection
from slicemill.runtime.messages import ReadDone, ReadStream
from slicemill.runtime.retained_logs import streams_with_retention
from slicemill.secrets import redact
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import LOCAL, unique_name
from slicemill.storage.garbage import remove_tree
from slicemill.storage.home import Home
from slicemill.storage.segments import Extent, SegmentWriter
from slicemill.time import END, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Journal field that is set when a stream's source was changed.
# Rows of the former source cannot be read from the new source.
MOVED = "moved"
# Maximum number of rows that one read returns, so that a large file does not delay other work.
ROWS_PER_READ = 200_000
# After a read with fewer rows than this, the next read may wait until more rows have accumulated.
_MANY_ROWS = 1_000
# Maximum delay of the notice by which a reader's thread tells the driver of new rows.
_NOTICE_US = 50_000
# Poll interval of a source without new rows.
_LOOK_US = 100_000
# Maximum time between two reads of a socket.
# Spark ends a Python process without tasks after a minute, which would close the socket.
_KEPT_US = 20_000_000
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = 200_000, 30_000_000
_DOUBLINGS = 8


@dataclass(slots=True)
class StreamCounts:
    """Row counts of a stream since the engine was started.

    `read` minus the other counts is the number of rows that are held back for sorting.
    """

    read: int = 0
    rows: int = 0  # number of rows written to the stream's log
    unneeded: int = 0  # number of rows not stored, because no query needs them
    late: int = 0
    bad: int = 0


def logs_of(stream: Stream) -> dict[str, Any]:
    """Map each role of a stream's logs (rows, errors, late, held) to the log's name and columns."""
    columns = to_arrow(stream.schema)
    logs = {"rows": (stream.name, columns), "errors": (stream.name + ERRORS, to_arrow(ERROR_SCHEMA))}
    if HELD in stream.sides:
        logs["late"] = (stream.name + LATE, columns)
        logs["held"] = (stream.name + HELD, columns)
    return logs


def stream_of(log: str, streams: Mapping[str, RunningStream]) -> RunningStream:
    """Return the running stream to which a log belongs."""
    names = (log, log.removesuffix(LATE), log.removesuffix(ERRORS))
    return streams[next(name for name in names if name in streams)]


@dataclass(frozen=True, slots=True)
class ReplayedRows:
    """Rows of a stream to replay, and stream fields to commit together with these rows."""

    handed: HandedRows
    fields: Mapping[str, Any]


class SourceFailed(SlicemillError):
    """Error: at least one source cannot be read."""


def streams_to_read(
    graph: QueryGraph,
    catalog: Catalog,
    home: Home,
    running: Mapping[str, RunningStream],
    altered: Collection[str] = (),
) -> list[Stream]:
    """Return the declared streams that the engine must read.

    A stream is read if a query needs it, if it has RETAIN, or if the home directory has earlier rows of it.
    Raise if a running stream was declared differently, unless it is in `altered` and may have a new source or
    new columns.
    """
    read = {op.stream for node in graph.sources if isinstance(op := node.operator, Source)}
    before = {name for name in home.streams if isinstance(catalog.relation(name), Stream)}
    retained = {stream.name for stream in streams_with_retention(catalog)}
    streams = [catalog.declared_stream(name) for name in sorted(read | before | retained)]
    for stream in streams:
        known = running.get(stream.name)
        if known is not None and stream.name not in altered and not known.is_same_source(stream):
            raise SlicemillError(
                f"{stream.name} was read under another declaration; give the new stream a new name"
            )
    return streams


def check_sources(streams: Iterable[RunningStream]) -> None:
    """Raise SourceFailed if the source of any stream cannot be read."""
    told = [
        f"reading {stream.name} stopped: {stream.error}" for stream in streams if stream.error is not None
    ]
    if told:
        raise SourceFailed("; ".join(told))


class Supply(Enum):
    """Way in which the rows of a stream reach slicemill."""

    READER = "a reader, in a worker"
    SPARK = "a query of Spark's, by way of the driver"
    PROGRAM = "a program, by way of the driver"


class RunningStream:
    """Declared stream of a running engine: its source position, reads and watermark."""

    def __init__(
        self, stream: Stream, home: Home, mill: str, folder: Path, clock: Callable[[], int], supply: Supply
    ) -> None:
        self.stream = stream
        self.name = stream.name
        self.supply = supply
        self.counts = StreamCounts()
        self.cpu_s = 0.0  # processor time of all reads of the stream
        self.ended = False
        self.error: str | None = None
        self.warning: str | None = None  # problem of the source that does not prevent reading
        self.loaded: tuple[int, int] | None = None  # worker that reads the stream, and number of its process
        self.reading_us: int | None = None  # time at which the current read was sent
        # The value None means that the next read follows a notice of the reader, or fed rows.
        self.next_read_us: int | None = 0 if supply is Supply.READER else None
        self.retry_us = 0  # time at which a failed source is retried
        self._admit_us = 0  # time at which a failed read of fed rows is retried
        self.behind = False  # True if the last read left available rows in the source
        self.catching_up = False  # True if the last read returned many rows, and left rows
        self._inbox: deque[HandedRows] = deque()
        self._home = home
        self._mill = mill
        self._folder = folder
        self._clock = clock
        self.failures = 0  # number of consecutive failed reads
        # Journal fields of the intake, which sorts arriving rows and detects late rows.
        # Minor fields, such as the time of the last poll, cause no journal record.
        self.fields: dict[str, Any] = dict(home.streams.get(self.name, {}))
        self._asked = False
        self._fields_to_set: Mapping[str, Any] = {}  # stream fields to commit with the current read
        self.through_spark: StreamingQuery | None = None  # Spark query that reads the stream, if any
        self._noticed = False
        self._asks = supply is Supply.READER  # True if the source sends no notices, so that it must be polled
        self._seen_us: int | None = None  # time until which Spark has passed on all rows
        self._look: Callable[[], bool] | None = None  # cheap check for new data in this process
        self._read_us = 0  # time at which the last read ended
        self._looked_us: int | None = None  # time until which all rows of the source are read
        self._announced = Announced()
        self._line = slack_line(stream)
        self._side_line = TimeLine()
        self._roles = {role: name for role, (name, _) in logs_of(stream).items()}
        self._committed = threading.Condition()
        # After a crash, Spark or the program sends uncommitted rows again.
        remove_tree(LOCAL, self.feed_folder)

    def is_at_position_of(self, again: RunningStream) -> bool:
        """Return True if another reader of the same stream has reached the same position in the source."""
        one, other = (stream.fields.get("offsets", {}) for stream in (self, again))
        if one.keys() != other.keys():
            return False
        path = origin_of(self.stream.source, self.name, self._folder).file
        spools = (self._home.source_folder(self.name), self._home.source_folder(again.name))
        return path is not None and all(
            is_same_position(one[partition], other[partition], spools, path.absolute()) for partition in one
        )

    @property
    def logs(self) -> list[str]:
        """Return the names of the stream's logs."""
        return list(self._roles.values())

    @property
    def handed(self) -> bool:
        """Return True if the driver receives the rows of the stream, from a program or from Spark."""
        return self.supply is not Supply.READER

    @property
    def feed_folder(self) -> Path:
        return self._home.source_folder(self.name) / "handed"

    def is_same_source(self, stream: Stream) -> bool:
        """Return True if a new declaration of the stream differs at most in RETAIN and BEGIN."""
        return replace(self.stream, retain_us=stream.retain_us, begin_us=stream.begin_us) == stream

    def declare(self, stream: Stream, changed: Mapping[str, Any]) -> None:
        """Apply a new declaration of the stream, in which RETAIN differs or columns were added."""
        self.stream = stream
        fields = {**self.fields, **changed}
        self.fields = {name: value for name, value in fields.items() if value is not None}

    def source_change_fields(self, stream: Stream, supply: Supply) -> dict[str, Any]:
        """Return the journal fields to set when the stream gets another source.

        The new source is read from its start. An exception is a socket with another address: the spool
        contains lines already received, so reading continues in the spool. Raise if rows would be lost or
        duplicated.
        """
        if self.ended:
            raise SlicemillError(
                f"{self.name} has ended, and its queries have given their last results; "
                "give the new stream another name"
            )
        if Supply.SPARK in (self.supply, supply):
            raise SlicemillError(
                f"{self.name} comes through Spark, whose checkpoint is of one source; "
                "give the new stream another name, and read both with UNION ALL"
            )
        before, after = (is_socket(one.source) for one in (self.stream, stream))
        if before and not after:
            raise SlicemillError(
                f"lines that have come to {self.name} may wait in its spool; another address (tcp://…) reads "
                "them, for any other source give the new stream another name, and read both with UNION ALL"
            )
        return {} if before else {"offsets": {}, MOVED: True}

    def moved(self, supply: Supply, fields: Mapping[str, Any]) -> None:
        """Switch the stream to another source. Its sequence numbers and watermark continue."""
        self.supply = supply
        self.fields = {**self.fields, **fields}
        self._look = self._looked_us = None
        self.record_source_success()
        self.retry_us = self._admit_us = 0

    def need(self, need: SourceProjection, exchanges: tuple[Exchange, ...] = ()) -> None:
        """Set the rows and columns of the stream that queries need.

        `exchanges` are the partitionings for tasks with several subtasks.
        """
        logs = {role: self._home.logs[name].folder for role, name in self._roles.items()}
        spool = self._home.source_folder(self.name)
        columns = self._home.logs[self.name].columns
        self.plan = StreamPlan(
            stream=self.stream,
            need=need,
            folder=self._folder,
            logs=logs,
            spool=spool,
            handed=self.handed,
            columns=columns,
            exchanges=exchanges,
            skips_past=self.stream.has_past and not self.stream.starts_early,
        )
        self.pickled = pickle.dumps(self.plan)
        self.digest = hashlib.sha256(self.pickled).hexdigest()

    # -- reading ---------------------------------------------------------------------------------------

    def hand(self, handed: HandedRows) -> None:
        """Queue rows from a program or from Spark, to be written to the stream's log in order.

        The rows are committed when the stream's offset reaches `handed.offset`. A batch that Spark replays is
        ignored if it is already committed.
        """
        if handed.offset > self._offset(ONLY):
            self._inbox.append(handed)

    def feed(self, table: pa.Table, now: int) -> None:
        """Check the rows that a program feeds to the stream, and queue them."""
        check_columns(self.stream.source_schema, table.column_names)
        stamp = self.stream.stamp_column
        if stamp is not None and stamp.lower() in (name.lower() for name in table.column_names):
            raise SlicemillError(
                f"column {stamp} of {self.name} is filled when rows arrive; feed rows without it"
            )
        checked = check_table(table, WantedColumns.of(self.stream, self.stream.schema.names))
        offset = (self._inbox[-1].offset if self._inbox else self._offset(ONLY)) + 1
        writer = SegmentWriter(self.feed_folder, unique_name())
        extents = (writer.append(checked.table),) if checked.table.num_rows else ()
        bad = (writer.append(checked.errors),) if checked.errors is not None else ()
        writer.release()
        self.hand(
            HandedRows(
                folder=self.feed_folder, rows=extents, errors=bad, offset=offset, arrival_us=now, seen_us=now
            )
        )

    def record_empty_poll(self, seen_us: int) -> None:
        """Record that Spark had no more rows of the stream at a time."""
        self._seen_us = max(seen_us, self._seen_us or seen_us)

    @property
    def has_handed(self) -> bool:
        """Return True if rows from a program or from Spark are queued and not committed yet."""
        return bool(self._inbox)

    def wait_committed(self, partition: str, offset: int) -> None:
        with self._committed:
            self._committed.wait_for(lambda: self._offset(partition) >= offset)

    def _offset(self, partition: str) -> int:
        return int(self.fields.get("offsets", {}).get(partition, -1))

    @property
    def asked(self) -> bool:
        """Return True if the source of the stream has been polled at least once."""
        if self.through_spark is not None:
            return self.through_spark.lastProgress is not None or not self.through_spark.isActive
        return self._asked or self.handed

    def wants_read(self, now: int) -> bool:
        if self.reading_us is not None or self.ended:
            return False
        if self.handed:
            return self._admit_us <= now and (bool(self._inbox) or self._releases_held_rows(now))
        return self.next_read_us is not None and self.next_read_us <= now

    def poll_soon(self, now: int) -> None:
        """Schedule a poll of a source that normally notifies the driver of new rows.

        If each read is a Spark job of its own (jobs mode), a notice arrives only with the answer of the next
        job.
        """
        if not (self._asks or self.handed or self.ended):
            self._asks = True
            self.next_read_us = now + _LOOK_US

    def is_idle(self, now: int) -> bool:
        """Return True, and postpone the next poll, if the source has no new data.

        The check costs one system call. It avoids a read, which is a whole Spark job in jobs mode.
        """
        if not self._asks or not self._asked or self._noticed or self.behind or self.failures:
            return False
        if is_socket(self.stream.source) and now - self._read_us >= _KEPT_US:
            return False
        if self._look is None:
            self._look = new_rows_check(self.stream, self._folder, self._home.source_folder(self.name))
        if self._look():
            return False
        self._looked_us = now
        self.next_read_us = now + _LOOK_US
        return not self._releases_held_rows(now)

    def _releases_held_rows(self, now: int) -> bool:
        """Return True if held-back rows can be released, because no earlier rows have arrived in time."""
        moment, seen = self._release_us(), self._silent_until(now)
        return moment is not None and seen is not None and moment <= seen

    def _release_us(self) -> int | None:
        held_from = self.fields.get(HELD_FROM)
        return None if held_from is None else time_of_watermark(self.stream, self.fields, held_from)

    def handle_notice(self) -> None:
        """Schedule a read at once, because the reader has reported new rows of the source."""
        self._noticed = self._asks = True
        self.next_read_us = 0

    def item(
        self, now: int, *, first: bool, flush: bool = False, replay: ReplayedRows | None = None
    ) -> ReadStream:
        handed = self._inbox[0] if self._inbox else self._nothing(now)
        held: tuple[Extent, ...] = ()
        if first and self._roles.get("held") is not None:
            held = tuple(e for epoch in self._home.logs[self._roles["held"]].epochs() for e in epoch.extents)
        self.reading_us, self._noticed = now, False
        self._fields_to_set = {} if replay is None else replay.fields
        return ReadStream(
            mill=self._mill,
            stream=self.name,
            plan=self.digest,
            offsets=self.fields.get("offsets", {}),
            announced=self._announced,
            limit_rows=ROWS_PER_READ,
            first=first,
            progress=self.fields,
            held=held,
            handed=handed if self.handed and not flush and replay is None else None,
            flush=flush,
            now_us=None if self._clock is wall_clock_us else now,
            replay=None if replay is None else replay.handed,
        )

    def _nothing(self, now: int) -> HandedRows:
        """Return a batch of zero rows. Its arrival time releases rows that are held back for sorting."""
        seen_us = self._silent_until(now)
        moment = now if seen_us is None else seen_us
        return HandedRows(
            folder=self.feed_folder,
            rows=(),
            errors=(),
            offset=self._offset(ONLY),
            arrival_us=moment,
            seen_us=moment,
        )

    def done(self, done: ReadDone, now: int, change: Change) -> None:
        """Add the results of a finished read to the next journal record."""
        assert self.reading_us is not None
        self.reading_us, self._read_us = None, now
        self.record_source_success()
        self._asked, self.warning = True, done.warning
        for ts, at_us in done.moments:
            self._line.arrived(ts, at_us)
        before = self.fields
        # The end of a stream is not stored, so that reading may continue after a restart.
        said = {**before, **done.progress, "offsets": dict(done.offsets), ENDED: None, **self._fields_to_set}
        self.fields = {name: value for name, value in said.items() if value is not None}
        if WATERMARK in self.fields:
            self._passed(self.fields[WATERMARK])
        moved = done.offsets != before.get("offsets", {}) or _has_advanced(before, self.fields)
        if done.written or moved or self._fields_to_set:
            change.streams[self.name] = said
        for role, appended in done.written.items():
            change.logs[self._roles[role]] = appended
        self.cpu_s += done.cpu_s
        self.counts.read += done.rows_read + _rows(done, "errors")
        self.counts.rows += _rows(done, "rows")
        self.counts.unneeded += done.rows_unneeded
        self.counts.late += _rows(done, "late")
        self.counts.bad += _rows(done, "errors")
        self._free_held(change)
        self.behind = done.more
        self.catching_up = done.more and done.rows_read >= _MANY_ROWS
        self.ended = self.ended or done.ended
        self._asks = not self.handed and (done.again_us is not None or self._noticed)
        if done.more or self._noticed:
            self.next_read_us = 0
        else:
            self.next_read_us = self._release_us() if done.again_us is None else now + done.again_us

    def _free_held(self, change: Change) -> None:
        """Delete rows from the log of rows held back for sorting, if they have been released."""
        if "held" not in self._roles:
            return
        held = self._home.logs[self._roles["held"]]
        first = self.fields.get(HELD_FROM)
        freed = -1
        for epoch in held.epochs(after=held.first - 1):
            if first is not None and epoch.max_ts is not None and epoch.max_ts >= first:
                break
            freed = epoch.number
        if freed >= 0:
            change.freed[held.name] = freed + 1

    def drop_committed_rows(self) -> None:
        """Remove the files of rows from a program or from Spark that are committed."""
        while self._inbox and self._inbox[0].offset <= self._offset(ONLY):
            handed = self._inbox.popleft()
            for extent in (*handed.rows, *handed.errors):
                LOCAL.remove(handed.folder / extent.segment)
        with self._committed:
            self._committed.notify_all()

    def lost(self) -> None:
        """Forget the worker that read the stream. The lost worker sends no more notices."""
        self.loaded, self._asks = None, not self.handed
        self.next_read_us = None if self.handed else 0

    def failed(self, error: str, now: int) -> None:
        """Record a failed read of the stream and schedule a retry with back-off."""
        self.reading_us = None
        self.lost()
        self.record_source_failure(error, now)
        if self.handed:
            self._admit_us = self.retry_us
        else:
            self.next_read_us = self.retry_us

    def retry_now(self) -> None:
        """Retry a failed read without back-off, because a caller waits for the read."""
        self._admit_us = 0
        if not self.handed:
            self.next_read_us = 0

    def record_source_failure(self, error: str, now: int) -> None:
        """Record a failure of the stream's source and schedule a retry."""
        self.error = redact(error)
        self._asked = True
        self.retry_us = now + min(_LONGEST_PAUSE_US, _FIRST_PAUSE_US * 2 ** min(self.failures, _DOUBLINGS))
        self.failures += 1

    def record_source_success(self) -> None:
        """Record a successful read of the stream, which may have returned no rows."""
        self.error, self.failures = None, 0

    # -- time ------------------------------------------------------------------------------------------

    def announce_at_least(self, log: str, ts: int) -> None:
        """Raise the announced watermark of a log to at least `ts`, for example after a restart."""
        rows, sides = self._announced
        of_rows = log == self.name
        self._announced = Announced(max(rows, ts) if of_rows else rows, sides if of_rows else max(sides, ts))

    def moments(self, log: str, after: int) -> TimeMoments:
        """Return the timestamps later than `after` that a log's watermark has reached, each with the time."""
        return (self._line if log == self.name else self._side_line).after(after)

    @property
    def announced(self) -> int:
        """Return the last announced watermark of the stream's rows."""
        return self._announced.rows

    def watermark(self, now: int) -> int:
        """Announce and return the watermark of the stream, which never decreases (M25)."""
        if self._is_over:
            found = END
        else:
            found = watermark(self.stream, self.fields, now, self._pending_since(), self._silent_until(now))
        if found > self._announced.rows:
            self.announce_at_least(self.name, found)
            if found == END:
                self._line.arrived(END, now)
            else:
                self._passed(found)
        return self._announced.rows

    def side_watermark(self, log: str, now: int) -> int:
        """Announce and return the watermark of the logs of late and bad rows."""
        found = END if self._is_over else side_watermark(self.fields, now, self._pending_since())
        if found > self._announced.sides:
            self.announce_at_least(log, found)
            if found == END:
                self._side_line.arrived(END, now)
            else:
                self._side_line.passed(found, found)
        return self._announced.sides

    @property
    def _is_over(self) -> bool:
        return self.ended and self.reading_us is None and not self._inbox

    def _pending_since(self) -> int | None:
        """Return the earliest arrival time of rows that are not in the stream's log yet, or None.

        This is the time at which the current read was sent, or at which the oldest queued row arrived.
        """
        moments = (self.reading_us, self._inbox[0].arrival_us if self._inbox else None)
        return min((moment for moment in moments if moment is not None), default=None)

    def _silent_until(self, now: int) -> int | None:
        """Return the time up to which all arrived rows are in the stream's log.

        Return None if this time is unknown until the source is polled. A source that sends notices has no new
        rows unless a notice is on its way.
        """
        if self.reading_us is not None or self._inbox:
            return None
        if self._asks:
            return self._looked_us
        return self._seen_us if self.supply is Supply.SPARK else now - _NOTICE_US

    def _passed(self, ts: int) -> None:
        """Record the time at which the clock advanced the stream's watermark to a timestamp."""
        moment = time_of_watermark(self.stream, self.fields, ts)
        if moment is not None:
            self._line.passed(ts, moment)


def _has_advanced(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return True if a read has advanced the watermark or the sequence number of a stream."""
    return any(before.get(name) != after.get(name) for name in (WATERMARK, HELD_FROM, "next_seq"))


def _rows(done: ReadDone, role: str) -> int:
    appended = done.written.get(role)
    return appended.rows if appended is not None else 0
