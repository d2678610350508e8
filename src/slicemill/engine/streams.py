"""A declared stream in the dispatcher: when to read its source, what a read commits, its watermark.

What lasts of a stream stands in the journal: how far its source has been read (`offsets`), and what the
intake says (`ingest.intake`). The rows themselves never come here: a worker reads them, decides which are
late, and writes them to the stream's log.
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

from slicemill.connectors.files.reader import is_same_place
from slicemill.connectors.origin import is_socket, origin_of
from slicemill.connectors.readers import look_at
from slicemill.engine.changing.retaining import retained_streams
from slicemill.engine.work import ReadDone, ReadStream
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import ERROR_SCHEMA, ERRORS, HELD, LATE, Catalog, Stream
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.columns import check_columns, checked_table
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
from slicemill.metrics.due import TimeLine, TimeMoments
from slicemill.operators.graph import QueryGraph
from slicemill.operators.streams.spec import Source
from slicemill.plan.needs import Need
from slicemill.plan.partitions import Exchange
from slicemill.secrets import redacted
from slicemill.storage.arrow_schema import to_arrow
from slicemill.storage.changes import Change
from slicemill.storage.files import LOCAL, unique_name
from slicemill.storage.home import Home
from slicemill.storage.segments import Extent, SegmentWriter
from slicemill.storage.trash import remove_tree
from slicemill.time import END, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Of a stream: its rows came from another source before, which a second reading would not have.
MOVED = "moved"
# A read takes at most so many rows, so that a large file does not keep others waiting for long.
ROWS_PER_READ = 200_000
# So many rows are worth a round at once; fewer may gather.
_MANY_ROWS = 1_000
# As long as a notice may be under way from a reader's thread to the dispatcher.
_NOTICE_US = 50_000
# Between two looks at a source that has nothing new.
_LOOK_US = 100_000
# Spark ends a Python process that has had no task for a minute, and with it the connection of a socket.
_KEPT_US = 20_000_000
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = 200_000, 30_000_000
_DOUBLINGS = 8


@dataclass(slots=True)
class StreamCounts:
    """Rows since the mill was made: all that were read, and what became of them.

    Those of which nothing became are held back to be put in order.
    """

    read: int = 0
    rows: int = 0  # in the stream's log, for queries
    unneeded: int = 0  # not stored, since no query would look at them
    late: int = 0
    bad: int = 0


def logs_of(stream: Stream) -> dict[str, Any]:
    """The logs of a stream, by role: name and columns."""
    columns = to_arrow(stream.schema)
    logs = {"rows": (stream.name, columns), "errors": (stream.name + ERRORS, to_arrow(ERROR_SCHEMA))}
    if HELD in stream.sides:
        logs["late"] = (stream.name + LATE, columns)
        logs["held"] = (stream.name + HELD, columns)
    return logs


@dataclass(frozen=True, slots=True)
class ReplayedRows:
    """Rows that could not be read before, read or bad again; with them `fields` of the stream are set."""

    handed: HandedRows
    fields: Mapping[str, Any]


class SourceFailed(SlicemillError):
    """Sources that cannot be read now; what does not read them is not concerned."""


def streams_to_read(
    graph: QueryGraph,
    catalog: Catalog,
    home: Home,
    running: Mapping[str, RunningStream],
    altered: Collection[str] = (),
) -> list[Stream]:
    """The streams that queries read, those that are retained for queries to come, and those that were read
    in this home before and are declared. Those that are altered have more columns, or another source."""
    read = {op.stream for node in graph.sources if isinstance(op := node.operator, Source)}
    before = {name for name in home.streams if isinstance(catalog.relation(name), Stream)}
    retained = {stream.name for stream in retained_streams(catalog)}
    streams = [catalog.declared_stream(name) for name in sorted(read | before | retained)]
    for stream in streams:
        known = running.get(stream.name)
        if known is not None and stream.name not in altered and not known.is_of(stream):
            raise SlicemillError(
                f"{stream.name} was read under another declaration; give the new stream a new name"
            )
    return streams


def check_sources(streams: Iterable[RunningStream]) -> None:
    """Raise if a stream's source cannot be read."""
    told = [
        f"reading {stream.name} stopped: {stream.error}" for stream in streams if stream.error is not None
    ]
    if told:
        raise SourceFailed("; ".join(told))


class Supply(Enum):
    """Who brings the rows of a stream."""

    READER = "a reader, in a worker"
    SPARK = "a query of Spark's, by way of the driver"
    PROGRAM = "a program, by way of the driver"


class RunningStream:
    """A declared stream of a mill that is open."""

    def __init__(
        self, stream: Stream, home: Home, mill: str, folder: Path, clock: Callable[[], int], supply: Supply
    ) -> None:
        self.stream = stream
        self.name = stream.name
        self.supply = supply
        self.counts = StreamCounts()
        self.cpu_s = 0.0  # of reading it
        self.ended = False
        self.error: str | None = None
        self.warning: str | None = None  # what is wrong with its source, though it can be read
        self.loaded: tuple[int, int] | None = None  # the worker, and its incarnation, that reads it
        self.reading_us: int | None = None  # when the read under way was sent
        # None: when the reader says that there is something, or somebody hands it over.
        self.next_read_us: int | None = 0 if supply is Supply.READER else None
        self.retry_us = 0  # when a source that has failed is tried again
        self._admit_us = 0  # … and when rows that were handed over are, whose read has failed
        self.behind = False  # the last read left something that is there already
        self.catching_up = False  # … and brought much
        self._inbox: deque[HandedRows] = deque()
        self._home = home
        self._mill = mill
        self._folder = folder
        self._clock = clock
        self.failures = 0  # in a row
        # What the intake says, also where it is not worth a record: when a source was last asked.
        self.fields: dict[str, Any] = dict(home.streams.get(self.name, {}))
        self._asked = False
        self._fields_to_set: Mapping[str, Any] = {}  # with the read under way
        self.through_spark: StreamingQuery | None = None  # who reads it, if it comes through Spark
        self._noticed = False
        self._asks = supply is Supply.READER  # it is known to be silent only as far as it has been asked
        self._seen_us: int | None = None  # nothing had come to Spark by then that was not handed over
        self._look: Callable[[], bool] | None = None  # at the source, from this process
        self._read_us = 0  # when the last read was done
        self._looked_us: int | None = None  # nothing had come by then that is not admitted
        self._announced = Announced()
        self._line = slack_line(stream)
        self._side_line = TimeLine()
        self._roles = {role: name for role, (name, _) in logs_of(stream).items()}
        self._committed = threading.Condition()
        # Of a mill that was killed: what is not committed is handed over again, by Spark or by the program.
        remove_tree(LOCAL, self.handed_folder)

    def is_where(self, again: RunningStream) -> bool:
        """Return True if a second reading of its files is at the same place."""
        one, other = (stream.fields.get("offsets", {}) for stream in (self, again))
        if one.keys() != other.keys():
            return False
        path = origin_of(self.stream.source, self.name, self._folder).file
        spools = (self._home.source_folder(self.name), self._home.source_folder(again.name))
        return path is not None and all(
            is_same_place(one[partition], other[partition], spools, path.absolute()) for partition in one
        )

    @property
    def logs(self) -> list[str]:
        """Return the names of its logs."""
        return list(self._roles.values())

    @property
    def handed(self) -> bool:
        """Do its rows come by way of the driver?"""
        return self.supply is not Supply.READER

    @property
    def handed_folder(self) -> Path:
        return self._home.source_folder(self.name) / "handed"

    def is_of(self, stream: Stream) -> bool:
        """Return True if it is declared so. Its RETAIN and BEGIN may change."""
        return replace(self.stream, retain_us=stream.retain_us, begin_us=stream.begin_us) == stream

    def declare(self, stream: Stream, changed: Mapping[str, Any]) -> None:
        """It is declared with another RETAIN, by which its fields have changed, or with more columns."""
        self.stream = stream
        fields = {**self.fields, **changed}
        self.fields = {name: value for name, value in fields.items() if value is not None}

    def begin_elsewhere(self, stream: Stream, supply: Supply) -> dict[str, Any]:
        """The fields to set when it comes from another source: that is read from its beginning.

        What stands in a spool has been received, so a socket's other address goes on with it. Raises where
        rows would be lost or come twice.
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
        """Its rows come from another source from now on; numbers and times go on."""
        self.supply = supply
        self.fields = {**self.fields, **fields}
        self._look = self._looked_us = None
        self.source_works()
        self.retry_us = self._admit_us = 0

    def need(self, need: Need, exchanges: tuple[Exchange, ...] = ()) -> None:
        """From now on this is what queries want of it, and how units with several cells read it."""
        logs = {role: self._home.logs[name].folder for role, name in self._roles.items()}
        spool = self._home.source_folder(self.name)
        columns = self._home.logs[self.name].columns
        self.plan = StreamPlan(
            self.stream,
            need,
            self._folder,
            logs,
            spool,
            self.handed,
            columns,
            exchanges,
            skips_past=self.stream.has_past and not self.stream.starts_early,
        )
        self.pickled = pickle.dumps(self.plan)
        self.digest = hashlib.sha256(self.pickled).hexdigest()

    # -- reading ---------------------------------------------------------------------------------------

    def hand(self, handed: HandedRows) -> None:
        """Rows to admit, in this order; they are committed when `offset` is the stream's.

        What the journal has already, a batch that Spark replays, is not admitted again.
        """
        if handed.offset > self._offset(ONLY):
            self._inbox.append(handed)

    def feed(self, table: pa.Table, now: int) -> None:
        """Hand over rows of a program, checked like those of any source."""
        check_columns(self.stream.sent, table.column_names)
        stamp = self.stream.stamp_column
        if stamp is not None and stamp.lower() in (name.lower() for name in table.column_names):
            raise SlicemillError(
                f"column {stamp} of {self.name} is filled when rows arrive; feed rows without it"
            )
        checked = checked_table(table, WantedColumns.of(self.stream, self.stream.schema.names))
        offset = (self._inbox[-1].offset if self._inbox else self._offset(ONLY)) + 1
        writer = SegmentWriter(self.handed_folder, unique_name())
        extents = (writer.append(checked.table),) if checked.table.num_rows else ()
        bad = (writer.append(checked.errors),) if checked.errors is not None else ()
        writer.release()
        self.hand(HandedRows(self.handed_folder, extents, bad, offset, now, now))

    def found_nothing(self, seen_us: int) -> None:
        """Spark has looked for rows at this moment, and there were none but those that it has handed over."""
        self._seen_us = max(seen_us, self._seen_us or seen_us)

    @property
    def has_handed(self) -> bool:
        """Was anything handed over that is not committed yet?"""
        return bool(self._inbox)

    def wait_committed(self, partition: str, offset: int) -> None:
        with self._committed:
            self._committed.wait_for(lambda: self._offset(partition) >= offset)

    def _offset(self, partition: str) -> int:
        return int(self.fields.get("offsets", {}).get(partition, -1))

    @property
    def asked(self) -> bool:
        """Has its source been asked for rows, whether it had some or failed?"""
        if self.through_spark is not None:
            return self.through_spark.lastProgress is not None or not self.through_spark.isActive
        return self._asked or self.handed

    def wants_read(self, now: int) -> bool:
        if self.reading_us is not None or self.ended:
            return False
        if self.handed:
            return self._admit_us <= now and (bool(self._inbox) or self._lets_out(now))
        return self.next_read_us is not None and self.next_read_us <= now

    def look_soon(self, now: int) -> None:
        """Look at a source that would give notice: a notice of a job waits for the answer of the next job."""
        if not (self._asks or self.handed or self.ended):
            self._asks = True
            self.next_read_us = now + _LOOK_US

    def rests(self, now: int) -> bool:
        """Return True if a look at its source finds nothing new; the next look is a little later.

        A look costs one call of the operating system. It spares reads where a read is a Spark job.
        """
        if not self._asks or not self._asked or self._noticed or self.behind or self.failures:
            return False
        if is_socket(self.stream.source) and now - self._read_us >= _KEPT_US:
            return False
        if self._look is None:
            self._look = look_at(self.stream, self._folder, self._home.source_folder(self.name))
        if self._look():
            return False
        self._looked_us = now
        self.next_read_us = now + _LOOK_US
        return not self._lets_out(now)

    def _lets_out(self, now: int) -> bool:
        """Has it been silent for so long that tuples come out which are held back to be put in order?"""
        moment, seen = self._lets_out_us(), self._silent_until(now)
        return moment is not None and seen is not None and moment <= seen

    def _lets_out_us(self) -> int | None:
        held_from = self.fields.get(HELD_FROM)
        return None if held_from is None else time_of_watermark(self.stream, self.fields, held_from)

    def noticed(self) -> None:
        """Its reader says that there is something, perhaps more than the read under way brings."""
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
            self._mill,
            self.name,
            self.digest,
            self.fields.get("offsets", {}),
            self._announced,
            ROWS_PER_READ,
            first,
            self.fields,
            held,
            handed if self.handed and not flush and replay is None else None,
            flush,
            None if self._clock is wall_clock_us else now,
            None if replay is None else replay.handed,
        )

    def _nothing(self, now: int) -> HandedRows:
        """What is handed over when nothing has come: tuples that are held back come out by the time."""
        seen_us = self._silent_until(now)
        moment = now if seen_us is None else seen_us
        return HandedRows(self.handed_folder, (), (), self._offset(ONLY), moment, moment)

    def done(self, done: ReadDone, now: int, change: Change) -> None:
        """Put what a read has brought into a change."""
        assert self.reading_us is not None
        self.reading_us, self._read_us = None, now
        self.source_works()
        self._asked, self.warning = True, done.warning
        for ts, at_us in done.moments:
            self._line.arrived(ts, at_us)
        before = self.fields
        # That a stream has ended holds for this mill only: the next one may read on.
        said = {**before, **done.progress, "offsets": dict(done.offsets), ENDED: None, **self._fields_to_set}
        self.fields = {name: value for name, value in said.items() if value is not None}
        if WATERMARK in self.fields:
            self._passed(self.fields[WATERMARK])
        moved = done.offsets != before.get("offsets", {}) or _moved(before, self.fields)
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
            self.next_read_us = self._lets_out_us() if done.again_us is None else now + done.again_us

    def _free_held(self, change: Change) -> None:
        """Rows that were held back are kept until the watermark has passed them."""
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

    def took_handed(self) -> None:
        """What was handed over is committed, up to the stream's offset."""
        while self._inbox and self._inbox[0].offset <= self._offset(ONLY):
            handed = self._inbox.popleft()
            for extent in (*handed.rows, *handed.errors):
                LOCAL.remove(handed.folder / extent.segment)
        with self._committed:
            self._committed.notify_all()

    def lost(self) -> None:
        """The worker that reads it has it no more: nobody gives notice until the next one has asked."""
        self.loaded, self._asks = None, not self.handed
        self.next_read_us = None if self.handed else 0

    def failed(self, error: str, now: int) -> None:
        """A read has failed. Only what reads this stream waits; it is tried again, ever less often."""
        self.reading_us = None
        self.lost()
        self.source_failed(error, now)
        if self.handed:
            self._admit_us = self.retry_us
        else:
            self.next_read_us = self.retry_us

    def retry_now(self) -> None:
        """Somebody waits for a read that has failed: it does not wait for its pause."""
        self._admit_us = 0
        if not self.handed:
            self.next_read_us = 0

    def source_failed(self, error: str, now: int) -> None:
        """Note that the source has failed, and when to try it again."""
        self.error = redacted(error)
        self._asked = True
        self.retry_us = now + min(_LONGEST_PAUSE_US, _FIRST_PAUSE_US * 2 ** min(self.failures, _DOUBLINGS))
        self.failures += 1

    def source_works(self) -> None:
        """Its source has been read again, also if there was nothing new."""
        self.error, self.failures = None, 0

    # -- time ------------------------------------------------------------------------------------------

    def announce_at_least(self, log: str, ts: int) -> None:
        """A watermark that a unit was given before a restart still holds."""
        rows, sides = self._announced
        of_rows = log == self.name
        self._announced = Announced(max(rows, ts) if of_rows else rows, sides if of_rows else max(sides, ts))

    def moments(self, log: str, after: int) -> TimeMoments:
        """When the time of one of its logs got to timestamps after one."""
        return (self._line if log == self.name else self._side_line).after(after)

    @property
    def announced(self) -> int:
        """The watermark as it was last announced: looking at it announces nothing."""
        return self._announced.rows

    def watermark(self, now: int) -> int:
        """The stream's watermark; it never goes back (M25)."""
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
        """The watermark of its late or its bad rows, by the clock."""
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
        """When the read under way was sent, or the oldest row came that is not admitted yet."""
        moments = (self.reading_us, self._inbox[0].arrival_us if self._inbox else None)
        return min((moment for moment in moments if moment is not None), default=None)

    def _silent_until(self, now: int) -> int | None:
        """Up to when all that has come is admitted, where that is known without asking the source again.

        Who gives notice has nothing as long as he says nothing; a notice may be on its way.
        """
        if self.reading_us is not None or self._inbox:
            return None
        if self._asks:
            return self._looked_us
        return self._seen_us if self.supply is Supply.SPARK else now - _NOTICE_US

    def _passed(self, ts: int) -> None:
        """The clock may have brought time here, if data have not."""
        moment = time_of_watermark(self.stream, self.fields, ts)
        if moment is not None:
            self._line.passed(ts, moment)


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Has time moved by what was read? When a source was asked is not worth a record."""
    return any(before.get(name) != after.get(name) for name in (WATERMARK, HELD_FROM, "next_seq"))


def _rows(done: ReadDone, role: str) -> int:
    appended = done.written.get(role)
    return appended.rows if appended is not None else 0
