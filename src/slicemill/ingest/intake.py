"""Where new tuples become a committed epoch of their stream's log, in order (M24-M27).

A tuple of an external stream that is earlier than what has been promised goes to the late stream. Under a
SLACK the newest tuples are held back until they can be put in order. What is held, what is admitted and what
is late move in one commit, and a batch that Spark replays after a crash changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slicemill.engine.steps import END
from slicemill.esl.catalog import ERROR_SCHEMA, ERRORS, LATE, Stream, TimestampKind
from slicemill.storage.arrow_schema import TS
from slicemill.storage.chunk import ChunkInfo, merge_sorted, open_chunk, sorted_by
from slicemill.storage.home import Home
from slicemill.storage.state import Output, SliceInfo, UnitVersion, commit_run, roll_forward

_HELD = "held"
_BATCH = "batch"
_REACHED = "reached"


@dataclass(slots=True)
class Counts:
    """Rows since the mill was made: admitted, too late, unreadable."""

    rows: int = 0
    late: int = 0
    bad: int = 0


@dataclass(slots=True)
class Arrived:
    """What a batch brought: chunks of rows, of bad rows, and how far time has come by rows nobody wants."""

    chunks: list[ChunkInfo] = field(default_factory=list)
    errors: list[ChunkInfo] = field(default_factory=list)
    reached: int | None = None

    def reach(self, ts: int | None) -> None:
        if ts is not None:
            self.reached = ts if self.reached is None else max(self.reached, ts)


class Intake:
    """One declared stream. Times are promised under its lock, so that no tuple slips below a promise.

    `seen` says until when all that arrived has been admitted (see `reading`); without a reader, until now.
    """

    def __init__(self, stream: Stream, home: Home, clock: Callable[[], int]) -> None:
        self.stream = stream
        self.log = home.log(stream.name, stream.schema)
        self.errors = home.log(stream.name + ERRORS, ERROR_SCHEMA)
        self.late = home.log(stream.name + LATE, stream.schema) if self._external else None
        self._logs = home.logs
        self._store = home.intake_store(stream.name)
        self._clock = clock
        self.seen: Callable[[], int | None] = clock
        self.counts = Counts()
        self._lock = threading.Lock()
        self._promised = -END
        self._last_arrival: int | None = None
        self._ended = False
        if self._store.latest() is None:
            self._store.commit(0, UnitVersion({}, extra={_BATCH: -1}))
        roll_forward(self._store, self._logs)

    @property
    def _external(self) -> bool:
        return self.stream.kind is TimestampKind.EXTERNAL

    def promise_at_least(self, ts: int) -> None:
        """What a unit has been told before a restart still holds."""
        with self._lock:
            self._promised = max(self._promised, ts)

    def complete(self) -> int:
        """An enabling timestamp: no later tuple will be below it. It is kept, whatever arrives (M25)."""
        with self._lock:
            if self._ended:
                return END
            if not self._external:
                self._promised = max(self._promised, self._clock())
                return self._promised
            reached, seen = self._reached(), self.seen()
            arrived = self._last_arrival
            if (
                self.stream.skew_us is not None
                and arrived is not None
                and seen is not None
                and reached > -END
            ):
                offered = reached + max(0, seen - arrived) - self.stream.skew_us
                # What is held back to be put in order is still to come.
                self._promised = max(self._promised, min(offered, *self._held_from(), END))
            return self._limit()

    def _limit(self) -> int:
        """Tuples below this are late: by a promise, by what is in the log, or by more than the slack."""
        reached = self._reached()
        waited = reached - self.stream.slack_us if reached > -END else -END
        return max(self._promised, self._admitted(), waited)

    def _held_from(self) -> list[int]:
        version = self._store.latest()
        chunks = [part.chunk for part in version.slices] if version is not None else []
        return [chunk.min_ts for chunk in chunks if chunk.min_ts is not None]

    def _reached(self) -> int:
        """The latest timestamp that has arrived: admitted, held back, or on a row that no query wants."""
        latest = self._store.latest()
        assert latest is not None
        held = [part.chunk.max_ts for part in latest.slices]
        passed = int(str(latest.extra.get(_REACHED, -END)))
        return max(ts for ts in (*held, self.log.frontier, passed) if ts is not None)

    def _admitted(self) -> int:
        return self.log.frontier if self.log.frontier is not None else -END

    def end(self) -> None:
        """The input has ended for good: admit what is held back."""
        with self._lock:
            version = self._store.latest()
            assert version is not None
            if version.slices:
                self._commit(Arrived(), int(str(version.extra[_BATCH])), flush=True)
            self._ended = True

    def admit(self, batch: int, arrived: Arrived, by: int | None = None) -> None:
        """Commit a batch that had arrived by then (by now, if left out), unless it is committed already."""
        with self._lock:
            version = self._store.latest()
            assert version is not None
            if batch <= int(str(version.extra[_BATCH])):
                return
            further = arrived.reached is not None and arrived.reached > self._reached()
            if arrived.chunks or arrived.errors or further:
                self._commit(arrived, batch)
                self._last_arrival = self._clock() if by is None else by

    def _commit(self, arrived: Arrived, batch: int, flush: bool = False) -> None:
        now = self._clock()
        outputs: dict[str, Output] = {}
        slices: tuple[SliceInfo, ...] = ()
        reached = max(self._reached(), -END if arrived.reached is None else arrived.reached)
        if arrived.errors:
            outputs[self.stream.name + ERRORS] = Output(tuple(arrived.errors), now, stamped_ts=now)
        if self._external:
            admitted, late, held = self._sorted_out(arrived.chunks, reached, flush)
            if admitted:
                outputs[self.stream.name] = Output(tuple(admitted), now)
            if late:
                outputs[self.stream.name + LATE] = Output(tuple(late), now, stamped_ts=now)
            slices = tuple(SliceInfo(_HELD, 0, chunk) for chunk in held)
        elif arrived.chunks:
            # All tuples of a batch arrived together, and not before what has been promised.
            stamp = max(now, self._promised, self._admitted())
            outputs[self.stream.name] = Output(tuple(arrived.chunks), now, stamped_ts=stamp)
        extra = {_BATCH: batch, _REACHED: reached}
        commit_run(self._store, UnitVersion({}, slices, outputs, extra), self._logs)
        self.counts.rows += _rows(outputs.get(self.stream.name))
        self.counts.late += _rows(outputs.get(self.stream.name + LATE))
        self.counts.bad += _rows(outputs.get(self.stream.name + ERRORS))

    def _sorted_out(
        self, chunks: Sequence[ChunkInfo], reached: int, flush: bool
    ) -> tuple[list[ChunkInfo], list[ChunkInfo], list[ChunkInfo]]:
        """New chunks as admitted, late and held back."""
        limit = self._limit()
        version = self._store.latest()
        assert version is not None and self.late is not None
        in_order = all(chunk.min_ts is None or chunk.min_ts >= limit for chunk in chunks)
        if in_order and not self.stream.slack_us:
            return list(chunks), [], []
        parts = [open_chunk(self.log.folder, chunk) for chunk in chunks if chunk.rows]
        parts += [self._store.read(part) for part in version.slices]
        if not parts:
            return [], [], []
        table = merge_sorted(parts)
        times = table.column(TS).to_numpy()
        late = int(np.searchsorted(times, limit, side="left"))
        upto = len(times)
        if self.stream.slack_us and not flush:
            end = max(int(times[-1]), reached)
            upto = max(late, int(np.searchsorted(times, end - self.stream.slack_us, side="right")))
        pieces = (table.slice(late, upto - late), table.slice(0, late).drop_columns([TS]), table.slice(upto))
        admitted = [self.log.write(pieces[0])] if pieces[0].num_rows else []
        too_late = [self.late.write(pieces[1])] if pieces[1].num_rows else []
        held = [self._store.write(pieces[2])] if pieces[2].num_rows else []
        return admitted, too_late, held


def _rows(output: Output | None) -> int:
    return sum(chunk.rows for chunk in output.chunks) if output is not None else 0


def packed(table: pa.Table, time_column: str | None) -> pa.Table:
    """Rows as a chunk stores them: sorted, with `_ts` where they bring a timestamp of their own."""
    if time_column is None:
        return table
    ts = table.column(time_column).cast(pa.int64())
    stamped = table.add_column(0, pa.field(TS, pa.int64(), nullable=False), ts)
    times = ts.to_numpy()
    if np.any(times[1:] < times[:-1]):
        stamped = sorted_by(stamped, times)
    return stamped
