"""Intake of a stream: detect late tuples, and sort all other tuples by time (M24-M27).

The intake is a state machine without clock, files or threads. A worker passes batches of a reader to the
intake, and each result becomes one commit (journal record). The intake decides for one tuple after the other,
in order of arrival, so results do not depend on the borders of batches:

    SLACK 5                     arrives as       0    1    2    3    4
                                timestamp        9    5   12    6   11
    running maximum before the tuple - 5         -    4    4    7    7
                                                 ok   ok   ok  late  ok
    watermark after the tuple                    4    4    7    7    7
    emitted in order                                       5             (9, 11 and 12 are still held)

- A tuple is late if it is below the watermark that tasks have received, or more than SLACK below an earlier
  tuple of its partition. The watermark may have passed a silent partition, so the next tuple of this
  partition may be late.
- Tuples above the watermark are *held-back tuples*. They stay in memory, and each is written once to the
  *held log* of the stream. Tuples up to the watermark are emitted by timestamp, then by arrival. So after a
  restart, the held-back tuples are the rows of the held log from timestamp `held_from` on.
- `_seq` numbers the emitted tuples. `_seq` increases with `_ts`, so the order by (`_ts`, `_seq`) is the order
  by `_seq`. In the held log and in the late stream, `_seq` numbers the arrivals.
- Rows that no query needs also advance the watermark. So queries do not change which tuples are late.
- SLACK is a delay that the user requested. So the arrival time (`_arr`) of a held-back tuple is the end of
  its slack, and response times are measured from this end.
- Late rows, bad rows, and tuples of internal streams (streams without a timestamp column) get their arrival
  time as timestamp, or the watermark that tasks have received if this watermark is later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.catalog.catalog import ERROR_SCHEMA, Stream, TimestampKind
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.errors import SlicemillError
from slicemill.ingest.late_rows import find_late_rows
from slicemill.ingest.watermarks import (
    ENDED,
    HELD_FROM,
    PARTITIONS,
    SIDE_STAMP,
    STAMP,
    WATERMARK,
    PartitionProgress,
    partitions_of,
    watermark_by_data,
    watermark_by_silence,
)
from slicemill.kernels.arrays import Int64s
from slicemill.metrics.due_times import TimeLine, TimeMoments, moments_of
from slicemill.time import BEGINNING

# Progress fields of a stream in the journal: next `_seq`, next arrival number, next number of a bad row.
NEXT_SEQ, NEXT_ARRIVAL, NEXT_ERROR = "next_seq", "next_arrival", "next_error"

# Name of the only partition of an unpartitioned source.
ONLY = ""

_FIELDS = [pa.field(name, pa.int64(), nullable=False) for name in (TS, SEQ, ARRIVAL)]


class BatchTimestamps(NamedTuple):
    """Timestamps of all rows of a batch, and a mask of the rows that queries need.

    The table of the batch has only the needed rows. For a stream without a timestamp column, only the length
    of `times` is used.
    """

    times: Int64s
    wanted: NDArray[np.bool_]


@dataclass(slots=True)
class Admitted:
    """Rows and progress that one batch adds to a stream, for one commit."""

    rows: pa.Table  # rows for the stream's log, sorted, not below earlier rows or watermarks
    late: pa.Table  # rows for the log of late rows
    held: pa.Table  # newly held-back tuples, for the log of held-back tuples
    errors: pa.Table  # rows for the log of bad rows
    progress: dict[str, Any]  # changed journal fields of the stream, where None removes a field
    moments: list[tuple[int, int]]  # (timestamp, time at which the watermark reached this timestamp)


class Intake:
    """State machine that orders the tuples of one declared stream and detects late tuples.

    `partitions` are the current partitions of the source. A partition that has not been read yet holds back
    the watermark. The progress of other partitions is dropped.
    """

    def __init__(
        self, stream: Stream, progress: Mapping[str, Any], partitions: Sequence[str] = (ONLY,)
    ) -> None:
        self.stream = stream
        self._external = stream.kind is TimestampKind.EXTERNAL
        known = partitions_of(progress)
        self._partitions = {name: known.get(name, PartitionProgress()) for name in partitions}
        self._watermark: int = progress.get(WATERMARK, BEGINNING)
        self._next_seq: int = progress.get(NEXT_SEQ, 0)
        self._next_arrival: int = progress.get(NEXT_ARRIVAL, 0)
        self._next_error: int = progress.get(NEXT_ERROR, 0)
        self._stamp: int = progress.get(STAMP, BEGINNING)
        self._side_stamp: int = progress.get(SIDE_STAMP, BEGINNING)
        self._restores_from: int | None = progress.get(HELD_FROM)
        self._held = _HeldTuples()
        self._slack_line = slack_line(stream)
        for part in sorted(known.values(), key=lambda one: one.arrival_us or 0):
            if part.max_ts is not None and part.arrival_us is not None:
                self._slack_line.arrived(part.max_ts - stream.slack_us, part.arrival_us)
        self._nothing = with_system_columns(to_arrow(stream.schema)).empty_table()
        self._no_errors = with_system_columns(to_arrow(ERROR_SCHEMA)).empty_table()

    def restore(self, held: pa.Table) -> None:
        """Restore the held-back tuples from the rows of their log."""
        if self._restores_from is None:
            return
        times, seqs = _integers(held.column(TS)), _integers(held.column(SEQ))
        order = np.lexsort((seqs, times))
        still = order[np.searchsorted(times[order], self._restores_from) :]
        self._held = _HeldTuples()
        self._held.add(held.take(still))
        self._restores_from = None

    def admit(
        self,
        partition: str,
        rows: pa.Table | None,
        arrival_us: int | Int64s,
        watermark: int,
        seen_us: int,
        *,
        passed: BatchTimestamps | None = None,
        errors: pa.Table | None = None,
        more: bool = False,
        ended: bool = False,
        side_watermark: int = BEGINNING,
    ) -> Admitted:
        """Process the next batch of a partition, in order of arrival.

        `rows` is None or empty if the read returned no rows. `watermark` is the watermark of the stream that
        tasks had received when the read was sent, and `side_watermark` is the watermark of late and bad rows.
        The batch contains all rows that had arrived by `seen_us`, the start of the read. `more` means that
        more rows can be read immediately. An `ended` partition has no more rows. `arrival_us` is one time for
        all rows, or one time for each row.
        """
        if self._restores_from is not None:
            raise SlicemillError(f"stream {self.stream.name} holds tuples back; restore them before reading")
        count = len(passed.times) if passed is not None else rows.num_rows if rows is not None else 0
        seqs = np.arange(self._next_arrival, self._next_arrival + count, dtype=np.int64)
        self._next_arrival += count
        arrivals = np.broadcast_to(np.asarray(arrival_us, np.int64), count)
        side = max(side_watermark, self._side_stamp)
        was = self._partitions.get(partition, PartitionProgress())
        now = PartitionProgress(
            was.max_ts,
            was.arrival_us,
            was.seen_us if more else max(seen_us, was.seen_us if was.seen_us is not None else seen_us),
            ended or not (count or more or (errors is not None and errors.num_rows)),
        )
        self._partitions[partition] = now
        late, held = self._nothing, self._nothing
        moments: list[tuple[int, int]] = []
        if self._external:
            self._watermark = max(self._watermark, watermark)
            times = passed.times if passed is not None else self._times(rows)
            is_late = find_late_rows(times, was.max_ts, self.stream.slack_us, self._watermark)
            self._partitions[partition] = _advance_progress(now, times, arrivals, is_late)
            moments = moments_of(times[~is_late] - self.stream.slack_us, arrivals[~is_late])
            if self.stream.skew_us is not None:  # a silent source advances the watermark too
                self._slack_line.passed(self._watermark, seen_us)
            known, announced = self._slack_line.after(BEGINNING), self._watermark
            for ts, at_us in moments:
                self._slack_line.arrived(ts, at_us)
            fresh = _select_rows(rows, passed, times, seqs, arrivals) if count else None
            admitted, late, held = self._sort_out(fresh, _select_values(is_late, passed), side)
            admitted = self._after_slack(admitted, known, announced)
        elif count:
            stamps = self.stamps(count, arrival_us, watermark)
            self._stamp = int(stamps[-1])
            admitted = _select_rows(rows, passed, stamps, seqs, arrivals)
        else:
            admitted = self._nothing
        bad = self._bad(errors, max([seen_us, *arrivals[-1:].tolist()]), side)
        for table in (late, bad):
            if table.num_rows:
                self._side_stamp = max(self._side_stamp, table.column(TS)[-1].as_py())
        return Admitted(self._numbered(admitted), late, held, bad, self._progress(ended=False), moments)

    def stamps(self, count: int, arrival_us: int | Int64s, watermark: int) -> Int64s:
        """Return the timestamps of the next `count` rows of a stream without a time column."""
        arrivals = np.broadcast_to(np.asarray(arrival_us, np.int64), count)
        return _stamps(arrivals, max(watermark, self._stamp))

    def flush(self, now_us: int) -> Admitted:
        """Emit all held-back tuples at the end of the stream."""
        self._watermark = max(self._watermark, self._held.greatest)
        rows = in_order(self._held.release(self._watermark), self._nothing)
        arrivals = np.maximum(_integers(rows.column(ARRIVAL)), now_us)
        rows = self._numbered(rows.set_column(2, _FIELDS[2], pa.array(arrivals)))
        return Admitted(rows, self._nothing, self._nothing, self._no_errors, self._progress(ended=True), [])

    def _times(self, rows: pa.Table | None) -> Int64s:
        if rows is None or not rows.num_rows:
            return np.empty(0, np.int64)
        return _integers(rows.column(self.stream.time_column)).view(np.int64)

    def _sort_out(
        self, fresh: pa.Table | None, is_late: NDArray[np.bool_], side: int
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Separate new tuples: tuples to emit, late tuples, and newly held-back tuples."""
        late, held = self._nothing, self._nothing
        if fresh is not None and is_late.any():
            late = fresh.filter(pa.array(is_late))
            late = late.set_column(0, _FIELDS[0], pa.array(_stamps(_integers(late.column(ARRIVAL)), side)))
            fresh = fresh.filter(pa.array(~is_late))
        for offered in (
            watermark_by_data(self.stream, self._partitions.values()),
            watermark_by_silence(self.stream, self._partitions.values()),
        ):
            if offered is not None and offered > self._watermark:
                self._watermark = offered
        ready = self._held.release(self._watermark)
        if fresh is not None and fresh.num_rows:
            fresh = in_order([fresh], fresh)
            upto = int(np.searchsorted(_integers(fresh.column(TS)), self._watermark, side="right"))
            ready += [fresh.slice(0, upto)] if upto else []
            if upto < fresh.num_rows:
                held = fresh.slice(upto)
                self._held.add(held)
        # A single table is already sorted.
        return ready[0] if len(ready) == 1 else in_order(ready, self._nothing), late, held

    def _after_slack(self, rows: pa.Table, known: TimeMoments, announced: int) -> pa.Table:
        """Set the arrival time of emitted tuples to the end of their SLACK.

        Tuples up to the watermark `announced` were released by the time line before this batch.
        """
        if not self.stream.slack_us or not rows.num_rows:
            return rows
        times, arrivals = _integers(rows.column(TS)), _integers(rows.column(ARRIVAL))
        now = self._slack_line.after(BEGINNING)
        over = np.where(times <= announced, known.reached(times), now.reached(times))
        over[over == np.iinfo(np.int64).max] = BEGINNING
        return rows.set_column(2, _FIELDS[2], pa.array(np.maximum(arrivals, over)))

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Assign sequence numbers to the emitted tuples."""
        first, self._next_seq = self._next_seq, self._next_seq + rows.num_rows
        return rows.set_column(1, _FIELDS[1], pa.array(np.arange(first, self._next_seq, dtype=np.int64)))

    def _bad(self, errors: pa.Table | None, arrival_us: int, side: int) -> pa.Table:
        """Return bad rows with their system columns."""
        if errors is None or not errors.num_rows:
            return self._no_errors
        count = errors.num_rows
        seqs = np.arange(self._next_error, self._next_error + count, dtype=np.int64)
        self._next_error += count
        arrivals = np.full(count, arrival_us)
        return _with_system(errors, _stamps(arrivals, side), seqs, arrivals)

    def _progress(self, ended: bool) -> dict[str, Any]:
        return {
            NEXT_SEQ: self._next_seq,
            NEXT_ARRIVAL: self._next_arrival,
            NEXT_ERROR: self._next_error or None,
            PARTITIONS: {name: list(part) for name, part in self._partitions.items()},
            WATERMARK: _unless_beginning(self._watermark),
            HELD_FROM: self._held.least,
            STAMP: _unless_beginning(self._stamp),
            SIDE_STAMP: _unless_beginning(self._side_stamp),
            ENDED: ended or None,
        }


class _HeldTuples:
    """Tuples that wait for the watermark, in a few sorted tables of increasing size.

    Because of the increasing sizes, each tuple is merged only a few times.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[Int64s, pa.Table]] = []

    @property
    def least(self) -> int | None:
        return min((int(times[0]) for times, _ in self._runs), default=None)

    @property
    def greatest(self) -> int:
        return max((int(times[-1]) for times, _ in self._runs), default=BEGINNING)

    def add(self, run: pa.Table) -> None:
        while self._runs and self._runs[-1][1].num_rows <= 2 * run.num_rows:
            run = in_order([self._runs.pop()[1], run], run)
        self._runs.append((_integers(run.column(TS)), run))

    def release(self, watermark: int) -> list[pa.Table]:
        """Remove the tuples up to a watermark; return them as sorted tables."""
        out: list[pa.Table] = []
        kept: list[tuple[Int64s, pa.Table]] = []
        for times, run in self._runs:
            upto = int(np.searchsorted(times, watermark, side="right"))
            if upto:
                out.append(run.slice(0, upto))
            if upto < len(times):
                kept.append((times[upto:], run.slice(upto)))
        self._runs = kept
        return out


def slack_line(stream: Stream) -> TimeLine:
    """Return an empty record of when each timestamp minus SLACK arrived."""
    skew_us, slack_us = stream.skew_us, stream.slack_us
    return TimeLine(None if skew_us is None else max(skew_us - slack_us, 0))


def in_order(tables: Sequence[pa.Table], nothing: pa.Table) -> pa.Table:
    """Concatenate tables and sort the rows by (`_ts`, `_seq`).

    A column that a table lacks is NULL in its rows.
    """
    if not tables:
        return nothing
    whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
    times, seqs = _integers(whole.column(TS)), _integers(whole.column(SEQ))
    behind = times[1:] < times[:-1]
    behind |= (times[1:] == times[:-1]) & (seqs[1:] < seqs[:-1])
    return whole.take(np.lexsort((seqs, times))) if behind.any() else whole


def _advance_progress(
    part: PartitionProgress, times: Int64s, arrivals: Int64s, is_late: NDArray[np.bool_]
) -> PartitionProgress:
    """Return the progress of a source partition after a batch.

    A late tuple does not advance the time, but shows that the partition is not silent.
    """
    if not len(times):
        return part
    max_ts = int(times.max(where=~is_late, initial=BEGINNING if part.max_ts is None else part.max_ts))
    return part._replace(max_ts=_unless_beginning(max_ts), arrival_us=int(arrivals[-1]))


def _stamps(arrivals: Int64s, least: int) -> Int64s:
    """Return arrival times as increasing timestamps, not below `least`."""
    return np.maximum.accumulate(np.maximum(arrivals, least))


def _select_values(values: NDArray[Any], passed: BatchTimestamps | None) -> NDArray[Any]:
    return values if passed is None else values[passed.wanted]


def _select_rows(
    rows: pa.Table | None, passed: BatchTimestamps | None, times: Int64s, seqs: Int64s, arrivals: Int64s
) -> pa.Table:
    """Return the rows of a batch that queries need, with their system columns."""
    assert rows is not None
    return _with_system(
        rows, _select_values(times, passed), _select_values(seqs, passed), _select_values(arrivals, passed)
    )


def _with_system(rows: pa.Table, times: Int64s, seqs: Int64s, arrivals: Int64s) -> pa.Table:
    system = [pa.array(values, pa.int64()) for values in (times, seqs, arrivals)]
    return pa.table([*system, *rows.columns], schema=pa.schema([*_FIELDS, *rows.schema]))


def _integers(column: pa.ChunkedArray) -> Int64s:
    found: Int64s = column.to_numpy()
    return found


def _unless_beginning(ts: int) -> int | None:
    return None if ts == BEGINNING else ts
