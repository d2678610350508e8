"""Log index: the positions of a log's rows in files, commit by commit.

A log stores a stream, a derived stream or the results of a query. Each commit (journal record) may append
rows to a log. These rows are one *epoch* of the log. An *extent* is a range of bytes with rows in a segment
file. Epochs have the number of their commit, and commits of the whole home directory are numbered in one
sequence, so the epochs of one log have gaps. A log of one day has millions of epochs. So the index consists
of columns of integers, about 90 bytes for an epoch with one extent:

    epochs   number  arrival_us  min_ts  max_ts  rows so far  extents so far
    extents  segment (position in a list of names)  offset  length  rows  checksum

Retention frees the oldest epochs. For a changelog, compaction folds the oldest epochs into the *base*: one
epoch with the resulting table as inserts. The base has the number of the last folded epoch:

    epochs   3    5    8 │ 9   12            log.fold(8, …)     8 │ 9   12       freed = base = 8
             changes     │ changes                           rows │ changes

So a reader that starts at the beginning gets the current table. A reader that has read only some of the
folded epochs must start again (`has_freed_after`). If the query of a changelog is replaced, an epoch deletes
all rows of the old table. The new table starts after that epoch (`begun_after`). A reader with a cursor (the
last epoch that it has read) reads these deletes. A reader from the beginning (-1) skips all epochs up to
`begun_after`, because their changes cancel out. While a query is paused, readers see the version of the query
at the pause: the *visible version*. Only `HomeState.apply` changes an index; any thread may read it.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import TS, conform, from_arrow, with_system_columns
from slicemill.columns.merge import has_ties, merge_sorted, merge_ties, ties_of
from slicemill.storage.filesystem import LOCAL, FileSystem
from slicemill.storage.segments import (
    UNVERIFIED,
    Extent,
    ExtentDamaged,
    ExtentFreed,
    parse_segment,
    read_extent,
    reader_of,
)
from slicemill.time import BEFORE_ALL
from slicemill.types import OP, Schema

# Number of unread epochs among which the oldest arrival time is searched.
_SEARCHED_EPOCHS = 1_000

EPOCH_COLUMNS = ("number", "arrival_us", "min_ts", "max_ts", "rows_so_far", "extents_so_far")
EXTENT_COLUMNS = ("segment", "offset", "length", "rows", "crc")


class EpochSpans(NamedTuple):
    """Columns with the number, timestamp range and row count of each epoch that has rows."""

    numbers: NDArray[np.int64]
    first_ts: NDArray[np.int64]
    last_ts: NDArray[np.int64]
    rows: NDArray[np.int64]


class LogColumns(NamedTuple):
    """Log index as the snapshots of the journal store it: columns of integers.

    The columns are EPOCH_COLUMNS and EXTENT_COLUMNS.
    """

    epochs: list[array[int]]
    extents: list[array[int]]
    segments: list[str]


class LogEnd(NamedTuple):
    """Last epoch of a log (-1 for an empty log), and the log's greatest timestamp."""

    epoch: int = -1
    max_ts: int | None = None


class Hold(NamedTuple):
    """Last epoch of a paused log that readers see. `as_of` is the last commit before the pause."""

    end: LogEnd
    as_of: int


class LogOutline(NamedTuple):
    """Description of a log with which another process can read the rows of given epochs."""

    name: str
    folder: Path
    columns: list[tuple[int, pa.Schema, pa.Schema]]
    hold: Hold | None


class Log:
    """Index of one log (stored rows of a stream or query); `hold` is its readable end during a pause."""

    def __init__(self, name: str, folder: Path, columns: pa.Schema, files: FileSystem = LOCAL) -> None:
        self.name = name
        self.folder = folder
        # First epoch of each schema, with the schema without and with system columns.
        self._columns = [(0, columns, with_system_columns(columns))]
        self.first = 0
        self.freed = -1  # last epoch whose rows are deleted; readers with an earlier cursor have missed rows
        self.end = LogEnd()
        self.hold: Hold | None = None
        self._files = files
        self._lock = threading.Lock()
        self._epochs = [array("q") for _ in EPOCH_COLUMNS]
        self._extents = [array("q") for _ in EXTENT_COLUMNS]
        self._start = 0
        self._freed_rows = 0
        self._freed_extents = 0
        self._bytes = 0
        self._segments: list[str] = []
        self._positions: dict[str, int] = {}
        self._live: dict[str, int] = {}
        self._newest: dict[str, int] = {}

    @property
    def outline(self) -> LogOutline:
        """Return a description of the log with which another process can read given epochs."""
        return LogOutline(self.name, self.folder, self._columns, self.hold)

    @classmethod
    def from_outline(cls, outline: LogOutline) -> Log:
        """Return a log without index; it reads epochs whose positions another process passes."""
        log = cls(outline.name, outline.folder, outline.columns[-1][1])
        log._columns, log.hold = outline.columns, outline.hold
        return log

    @property
    def columns(self) -> pa.Schema:
        """Return the columns of newly appended rows."""
        return self._columns[-1][1]

    @property
    def columns_shown(self) -> pa.Schema:
        """Return the columns of the rows that readers see; a paused log shows its columns at the pause."""
        return self._shown()[1]

    @property
    def begun_after(self) -> int:
        """Return the last epoch of a changelog before the current definition of its query, or -1.

        The changes up to this epoch cancel out.
        """
        return _begun_after(*self._columns[-1])

    @property
    def shown_begun_after(self) -> int:
        """Return the last epoch of a changelog before the definition of its query that readers see, or -1."""
        return _begun_after(*self._shown())

    def _shown(self) -> tuple[int, pa.Schema, pa.Schema]:
        hold, found = self.hold, self._columns[-1]
        if hold is not None:
            # New columns apply from the commit that sets them, or from the next one if it has deletes.
            found = next(one for one in reversed(self._columns) if one[0] <= hold.as_of + 1)
        return found

    def schema_shown(self, now: Schema) -> Schema:
        """Return the SQL schema of the rows that readers see; `now` is the current schema of the query.

        The schema of an earlier definition omits the key, because each change has all columns.
        """
        if self._shown() is self._columns[-1]:
            return now
        return replace(from_arrow(self.columns_shown), changelog=OP in self.columns_shown.names)

    @property
    def changes(self) -> bool:
        """Return True if the log is a changelog, whose rows are inserts, updates and deletes."""
        return OP in self.columns.names

    @property
    def first_columns(self) -> pa.Schema:
        """Return the columns of the oldest rows of the log."""
        return self._columns[0][1]

    @property
    def changes_of_columns(self) -> list[tuple[int, pa.Schema]]:
        """Return each change of the columns of the log: the first epoch with new columns, and the columns."""
        return [(epoch, columns) for epoch, columns, _ in self._columns[1:]]

    def change_columns(self, epoch: int, columns: pa.Schema) -> None:
        """Change the columns of the rows that are appended from an epoch on.

        A changelog starts with an empty table at this epoch, even if its columns stay the same.
        """
        if columns.equals(self.columns, check_metadata=True):
            columns = self.columns  # the old object is reused, because readers compare schemas by identity
        self._columns = [*self._columns, (epoch, columns, with_system_columns(columns))]

    def widen(self, columns: pa.Schema) -> None:
        """Add columns to all rows of the log, including stored rows.

        `columns` is the complete new schema. A stored row without a new column is read with the column's
        default.
        """
        self._columns = [(0, columns, with_system_columns(columns))]

    def columns_at(self, epoch: int) -> pa.Schema:
        """Return the columns of the rows that an epoch appended."""
        return next(columns for first, columns, _ in reversed(self._columns) if first <= epoch)

    def _stored_schema_at(self, epoch: int) -> pa.Schema:
        return next(stored for first, _, stored in reversed(self._columns) if first <= epoch)

    @property
    def schema(self) -> Schema:
        """Return the columns of newly appended rows as an SQL schema."""
        return from_arrow(self.columns)

    @property
    def head(self) -> int:
        """Return the last epoch that readers see, or -1 for an empty log."""
        return self._read_end.epoch

    @property
    def max_ts(self) -> int | None:
        """Return the greatest timestamp of the rows that readers see, or None."""
        return self._read_end.max_ts

    @property
    def _read_end(self) -> LogEnd:
        return self.end if self.hold is None else self.hold.end

    @property
    def rows(self) -> int:
        """Return the number of stored rows, which retention has not deleted."""
        with self._lock:
            return self._rows_until(len(self._epochs[0])) - self._rows_until(self._start)

    @property
    def bytes(self) -> int:
        """Return the size in bytes of the stored rows, which retention has not deleted."""
        return self._bytes

    def __len__(self) -> int:
        """Return the number of epochs that readers see."""
        return self._until() - self._start

    def _until(self) -> int:
        """Return the index position after the last epoch that readers see."""
        numbers = self._epochs[0]
        return len(numbers) if self.hold is None else bisect_right(numbers, self.head, lo=self._start)

    @property
    def base(self) -> int | None:
        """Return the epoch with the table that compaction has made of a changelog's old changes, or None."""
        with self._lock:
            there = self._start < len(self._epochs[0]) and self._epochs[0][self._start] == self.freed
            return self.freed if there else None

    def has_freed_after(self, cursor: int) -> bool:
        """Return True if epochs after a cursor (the last epoch read) have been deleted or compacted.

        The result is False for a reader from the beginning (cursor -1), which gets the compacted table.
        """
        return 0 <= cursor < self.freed

    def covers(self, cursor: int) -> bool:
        """Return True if all epochs after a cursor (the last epoch read) can still be read.

        From the beginning (cursor -1) compacted epochs count as readable.
        """
        return not self.has_freed_after(cursor) and (cursor >= 0 or self.freed < 0 or self.changes)

    def epochs(self, after: int = -1, upto: int | None = None, of_now: bool = False) -> list[Epoch]:
        """Return the epochs after cursor `after`, up to and including `upto`.

        A cursor is the last epoch that was read. From the beginning (-1), only results of the definition of
        the query that readers see are returned. If `of_now` is True, only results of the newest definition
        are returned. Then no epoch is returned while the log is paused at an earlier definition.
        """
        with self._lock:
            begun = self.begun_after if of_now else self.shown_begun_after
            begin = bisect_right(self._epochs[0], begun if after < 0 else after, lo=self._start)
            end = self._until()
            if upto is not None:
                end = min(end, bisect_right(self._epochs[0], upto, lo=begin))
            return [self._epoch(position) for position in range(begin, end)]

    def all_epochs(self) -> list[Epoch]:
        """Return all stored epochs, including epochs that readers do not see.

        Readers do not see epochs after a pause, and epochs of earlier definitions of the query.
        """
        with self._lock:
            return [self._epoch(position) for position in range(self._start, len(self._epochs[0]))]

    def spans(self) -> EpochSpans:
        """Return numbers, timestamp ranges and row counts of the epochs that readers see.

        Only the index is read, not the rows.
        """
        with self._lock:
            numbers, _, first_ts, last_ts, rows_so_far, _ = (
                np.array(column[self._start : self._until()], np.int64) for column in self._epochs
            )
            before = self._rows_until(self._start)
        rows = np.diff(rows_so_far, prepend=before)
        filled = rows > 0
        return EpochSpans(numbers[filled], first_ts[filled], last_ts[filled], rows[filled])

    def take(self, after: int, most_rows: float) -> tuple[list[Epoch], int | None]:
        """Return the next epochs after a cursor (last epoch read), and the least timestamp of later epochs.

        The returned epochs have at most `most_rows` rows, but at least one epoch is returned. Rows are in
        timestamp order, so the first later epoch with rows has the least timestamp.
        """
        with self._lock:
            rows_so_far, least = self._epochs[4], self._epochs[2]
            begin = self._behind(after)
            most = self._rows_until(begin) + most_rows
            until = max(self._until(), begin)
            end = min(max(bisect_right(rows_so_far, most, lo=begin, hi=until), begin + 1), until)
            left = next((ts for ts in islice(least, end, until) if ts != BEFORE_ALL), None)
            return [self._epoch(position) for position in range(begin, end)], left

    def waiting(self, after: int, upto: int) -> tuple[int, int, int | None]:
        """Count the unread epochs and rows after a cursor; return also the oldest arrival time, or None."""
        with self._lock:
            numbers, arrivals = self._epochs[0], self._epochs[1]
            begin = self._behind(after)
            end = min(bisect_right(numbers, upto, lo=begin), self._until())
            if begin >= end:
                return 0, 0, None
            # Arrival times may decrease with the clock or between writers, so several epochs are searched.
            oldest = min(arrivals[begin : min(end, begin + _SEARCHED_EPOCHS)])
            return end - begin, self._rows_until(end) - self._rows_until(begin), oldest

    def last_before(self, ts: int) -> int:
        """Return the last epoch up to which all rows have timestamps before a time, or -1.

        The result is -1 if the first epoch has a row at or after the time.
        """
        with self._lock:
            numbers, greatest, found = self._epochs[0], self._epochs[3], -1
            for position in range(self._start, len(numbers)):
                if greatest[position] != BEFORE_ALL and greatest[position] >= ts:
                    break
                found = numbers[position]
            return found

    def rows_after(self, after: int) -> int:
        """Return the number of rows after a cursor, the last epoch that was read."""
        with self._lock:
            end = self._until()
            begin = min(self._behind(after), end)
            return self._rows_until(end) - self._rows_until(begin)

    def first_arrived_after(self, arrival_us: int, upto: int) -> int:
        """Return the first epoch whose rows arrived after a time.

        Return `upto` + 1 if no epoch up to `upto` arrived after the time. Epochs are deleted in order, so the
        result is the first epoch that a retention by age retains. Arrival times may decrease with the clock.
        """
        with self._lock:
            numbers, arrivals = self._epochs[0], self._epochs[1]
            end = bisect_right(numbers, upto, lo=self._start)
            for position in range(self._start, end):
                if arrivals[position] > arrival_us:
                    return numbers[position]
            return upto + 1

    def newest(self, count: int) -> int:
        """Return the number of the oldest of the `count` newest epochs.

        Return head + 1 if `count` is 0.
        """
        with self._lock:
            numbers = self._epochs[0]
            end = self._until()
            position = max(end - count, self._start)
            return numbers[position] if position < end else self.head + 1

    def read(self, epoch: Epoch, needed: frozenset[str] = frozenset()) -> pa.Table:
        """Read the rows of an epoch; `read_epochs` describes `needed` and the order of rows."""
        if len(epoch.extents) == 1 and epoch.rows and not needed:
            # Fast path: nearly all epochs of a running query have one extent with one or two rows.
            try:
                table = read_extent(self.folder, epoch.extents[0], self._files)
            except ExtentDamaged as problem:
                raise lost_rows(self.folder, [epoch], problem) from problem
            if table.schema.equals(self._stored_schema_at(epoch.number)):
                return table
        return read_epochs(self.folder, self.columns_at(epoch.number), [epoch], needed, self._files)

    def scan(self, epochs: Iterable[Epoch], columns: Collection[str]) -> pa.Table:
        """Read the timestamps and some columns of epochs, without decoding other columns."""
        wanted = {TS, *columns}
        shown = with_system_columns(self.columns_shown)
        schema = pa.schema([field for field in shown if field.name in wanted])
        parts = [schema.empty_table()]
        for run in adjacent_epochs(epochs):
            found = self._scan_run(run, wanted)
            parts += [conform(table, schema) for table in found]
        return pa.concat_tables(parts)

    def _scan_run(self, run: list[Epoch], wanted: set[str]) -> list[pa.Table]:
        reader = reader_of(self._files)
        extents = [extent for epoch in run for extent in epoch.extents]
        try:
            if len(run[0].extents) == 1 and not has_ties(reader.columns_of(self.folder, extents[0])):
                return [reader.read_columns(self.folder, extents, wanted)]
        except ExtentDamaged as problem:
            raise lost_rows(self.folder, run, problem) from problem
        return [self.read(epoch) for epoch in run]

    def read_after(self, after: int = -1) -> tuple[list[Epoch], list[pa.Table]]:
        """Read the rows of all epochs after a cursor (the last epoch read).

        Retry if retention deletes rows meanwhile.
        """
        while True:
            freed, epochs = self.freed, self.epochs(after)
            try:
                return epochs, [self.read(epoch) for epoch in epochs]
            except ExtentFreed:
                if self.freed == freed:
                    raise

    def append(
        self,
        number: int,
        extents: Iterable[Sequence[Any]],
        min_ts: int | None,
        max_ts: int | None,
        arrival_us: int,
    ) -> None:
        """Add an epoch to the index. Its extents are (segment, offset, length, rows, checksum).

        Extents in records of FORMAT 5 have no checksum.
        """
        with self._lock:
            rows = self._rows_until(len(self._epochs[0]))
            segment_indexes, offsets, lengths, counts, crcs = self._extents
            for segment, offset, length, count, crc in map(_with_crc, extents):
                segment_indexes.append(self._segment_index(segment))
                offsets.append(offset)
                lengths.append(length)
                counts.append(count)
                crcs.append(crc)
                rows += count
                self._bytes += length
            numbers, arrivals, least, greatest, rows_so_far, extents_so_far = self._epochs
            numbers.append(number)
            arrivals.append(arrival_us)
            least.append(BEFORE_ALL if min_ts is None else min_ts)
            greatest.append(BEFORE_ALL if max_ts is None else max_ts)
            rows_so_far.append(rows)
            extents_so_far.append(self._freed_extents + len(segment_indexes))
            known = [ts for ts in (self.end.max_ts, max_ts) if ts is not None]
            self.end = LogEnd(number, max(known, default=None))

    def free(self, first: int) -> list[str]:
        """Remove the epochs before `first` from the index; return the segments that are no longer used."""
        with self._lock:
            emptied = self._free(first)
            if self._start * 2 > len(self._epochs[0]):
                self._compact()
            return emptied

    def fold(
        self,
        upto: int,
        extents: Iterable[Sequence[Any]],
        min_ts: int | None,
        max_ts: int | None,
        arrival_us: int,
    ) -> list[str]:
        """Replace all epochs up to `upto` by the rows of one table; return the segments no longer used."""
        with self._lock:
            emptied = self._free(upto + 1)
            self._compact()
            whole = map(_with_crc, extents)
            columns = [list(column) for column in zip(*whole, strict=True)] or [[] for _ in EXTENT_COLUMNS]
            segments = [self._segment_index(segment) for segment in columns[0]]
            rows = sum(columns[3])
            self._bytes += sum(columns[2])
            # The totals of freed epochs are reduced, so that the running totals of later epochs stay equal.
            rows_so_far, extents_so_far = self._freed_rows, self._freed_extents
            self._freed_rows -= rows
            self._freed_extents -= len(segments)
            for column, values in zip(self._extents, (segments, *columns[1:]), strict=True):
                column[:0] = array("q", values)
            times = (BEFORE_ALL if ts is None else ts for ts in (min_ts, max_ts))
            for column, value in zip(
                self._epochs, (upto, arrival_us, *times, rows_so_far, extents_so_far), strict=True
            ):
                column.insert(0, value)
            return emptied

    def lose(self, lost: Collection[tuple[str, int]]) -> None:
        """Drop the rows of unreadable extents, which are given as pairs (segment, offset).

        The extents remain in the index with 0 rows, so readers skip them. Their segments are removed when the
        extents are freed.
        """
        with self._lock:
            indexes, offsets, _, counts, _ = self._extents
            missing = np.zeros(len(counts), np.int64)
            for position, (index, offset) in enumerate(zip(indexes, offsets, strict=True)):
                if (self._segments[index], offset) in lost:
                    missing[position], counts[position] = counts[position], 0
            # Running totals include all epochs since the log was created, also freed epochs.
            missed_so_far = np.concatenate(([0], np.cumsum(missing)))
            rows_so_far = self._epochs[4]
            for position in range(self._start, len(rows_so_far)):
                rows_so_far[position] -= int(missed_so_far[self._extents_until(position + 1)])

    def is_used(self, segment: str) -> bool:
        """Return True if a segment file contains rows that are still stored."""
        with self._lock:
            return self._live.get(segment, 0) > 0

    def is_superseded(self, segment: str) -> bool:
        """Return True if the writer of a segment file has started a later segment of the same log."""
        parsed = parse_segment(segment)
        with self._lock:
            return parsed is not None and parsed[1] < self._newest.get(parsed[0], -1)

    def segments_in_use(self) -> list[str]:
        """Return the names of the segment files that contain rows which are still stored."""
        with self._lock:
            return [segment for segment, count in self._live.items() if count]

    def dump(self) -> LogColumns:
        """Return a copy of the log index without the epochs that retention has deleted."""
        with self._lock:
            gone = self._extents_until(self._start)
            return LogColumns(
                [column[self._start :] for column in self._epochs],
                [column[gone:] for column in self._extents],
                list(self._segments),
            )

    def load(self, stored: LogColumns) -> None:
        """Load the result of `dump` into this empty log index."""
        with self._lock:
            self._epochs, self._extents = stored.epochs, stored.extents
            if len(self._extents) < len(EXTENT_COLUMNS):  # FORMAT 5 had no checksums
                self._extents = [*self._extents, array("q", [UNVERIFIED]) * len(self._extents[0])]
            self._segments = list(stored.segments)
            self._positions = {segment: index for index, segment in enumerate(self._segments)}
            if self._epochs[0]:
                rows = sum(self._extents[3])
                self._freed_rows = self._epochs[4][-1] - rows
                self._freed_extents = self._epochs[5][-1] - len(self._extents[0])
            self._bytes = sum(self._extents[2])
            counts = np.bincount(np.frombuffer(self._extents[0], np.int64), minlength=len(self._segments))
            self._live = dict(zip(self._segments, counts.tolist(), strict=True))
            for segment in self._segments:
                self._note_newest(segment)

    def _free(self, first: int) -> list[str]:
        self.first = max(self.first, first)
        end = bisect_left(self._epochs[0], first, lo=self._start)
        if end == self._start:
            return []
        self.freed = self._epochs[0][end - 1]
        segment_indexes, lengths = self._extents[0], self._extents[2]
        emptied = []
        for position in range(self._extents_until(self._start), self._extents_until(end)):
            self._bytes -= lengths[position]
            segment = self._segments[segment_indexes[position]]
            self._live[segment] -= 1
            if not self._live[segment]:
                emptied.append(segment)
        self._start = end
        return emptied

    def _segment_index(self, segment: str) -> int:
        index = self._positions.get(segment)
        if index is None:
            index = self._positions[segment] = len(self._segments)
            self._segments.append(segment)
            self._live[segment] = 0
            self._note_newest(segment)
        self._live[segment] += 1
        return index

    def _note_newest(self, segment: str) -> None:
        parsed = parse_segment(segment)
        if parsed is not None:
            writer, number = parsed
            self._newest[writer] = max(number, self._newest.get(writer, -1))

    def _behind(self, after: int) -> int:
        """Return the index position of the first epoch after a cursor, the last epoch that was read."""
        return bisect_right(self._epochs[0], self.begun_after if after < 0 else after, lo=self._start)

    def _rows_until(self, position: int) -> int:
        """Return the number of rows before an index position, including rows that were deleted."""
        return self._epochs[4][position - 1] if position else self._freed_rows

    def _extents_until(self, position: int) -> int:
        """Return the position of the first extent of the epoch at an index position."""
        return self._epochs[5][position - 1] - self._freed_extents if position else 0

    def _epoch(self, position: int) -> Epoch:
        number, arrival_us, min_ts, max_ts, _, _ = (column[position] for column in self._epochs)
        segment_indexes, offsets, lengths, rows, crcs = self._extents
        begin, end = self._extents_until(position), self._extents_until(position + 1)
        extents = tuple(
            Extent(self._segments[segment_indexes[i]], offsets[i], lengths[i], rows[i], crcs[i])
            for i in range(begin, end)
        )
        return Epoch(
            number,
            extents,
            sum(rows[begin:end]),
            sum(lengths[begin:end]),
            None if min_ts == BEFORE_ALL else min_ts,
            None if max_ts == BEFORE_ALL else max_ts,
            arrival_us,
        )

    def _compact(self) -> None:
        """Remove deleted epochs from the arrays of the index, and renumber the segments."""
        gone = self._extents_until(self._start)
        self._freed_rows = self._rows_until(self._start)
        self._freed_extents += gone
        for column in self._epochs:
            del column[: self._start]
        for column in self._extents:
            del column[:gone]
        self._start = 0
        kept = [segment for segment in self._segments if self._live[segment]]
        moved = np.zeros(len(self._segments), np.int64)
        for index, segment in enumerate(kept):
            moved[self._positions[segment]] = index
        self._extents[0] = array("q", moved[np.frombuffer(self._extents[0], np.int64)].tobytes())
        self._segments, self._positions = kept, {segment: index for index, segment in enumerate(kept)}
        self._live = {segment: self._live[segment] for segment in kept}


def _begun_after(first: int, columns: pa.Schema, _: pa.Schema) -> int:
    return first - 1 if OP in columns.names else -1


def _with_crc(extent: Sequence[Any]) -> Sequence[Any]:
    return extent if len(extent) == len(EXTENT_COLUMNS) else (*extent, UNVERIFIED)


# Epochs of a log, and functions that read the rows of epochs.


class Epoch(NamedTuple):
    """Rows that one commit (journal record) appended to a log."""

    number: int
    extents: tuple[Extent, ...]
    rows: int
    bytes: int
    min_ts: int | None
    max_ts: int | None
    arrival_us: int


def adjacent_epochs(epochs: Iterable[Epoch]) -> Iterator[list[Epoch]]:
    """Group successive epochs whose rows are adjacent in one segment file.

    An epoch with several extents is a group of its own.
    """
    run: list[Epoch] = []
    for epoch in epochs:
        if not epoch.rows:
            continue
        if run and not _follows(run[-1], epoch):
            yield run
            run = []
        run.append(epoch)
    if run:
        yield run


def _follows(before: Epoch, after: Epoch) -> bool:
    if len(before.extents) != 1 or len(after.extents) != 1:
        return False
    (one,), (other,) = before.extents, after.extents
    return one.segment == other.segment and one.offset + one.length == other.offset


def read_epochs(
    folder: Path,
    columns: pa.Schema,
    epochs: Iterable[Epoch],
    needed: frozenset[str] = frozenset(),
    files: FileSystem = LOCAL,
) -> pa.Table:
    """Read the rows of epochs, sorted by (`_ts`, `_seq`).

    The system columns precede the other columns. No row is copied unless the timestamps of extents overlap. A
    column that was not stored is NULL. An extent that lacks a `needed` column is omitted, because it was
    stored before the query of the reader existed.
    """
    schema = with_system_columns(columns)
    found = read_stored_tables(folder, epochs, needed, files)
    tables = [conform(table, schema, arrival_us) for table, arrival_us in found]
    return merge_sorted(tables) if tables else schema.empty_table()


def read_stored_tables(
    folder: Path, epochs: Iterable[Epoch], needed: frozenset[str] = frozenset(), files: FileSystem = LOCAL
) -> Iterator[tuple[pa.Table, int]]:
    """Yield the stored tables of epochs, each with the arrival time of its epoch.

    Several subtasks may write tables for one epoch. Tables with tie columns, which order the rows of several
    subtasks, are merged into one table.
    """
    for epoch in epochs:
        tied = []
        for extent in epoch.extents:
            if extent.rows:
                try:
                    table = read_extent(folder, extent, files)
                except ExtentDamaged as problem:
                    raise lost_rows(folder, [epoch], problem) from problem
                if needed and not needed.issubset(table.column_names):
                    continue
                if ties_of(table):
                    tied.append(table)
                else:
                    yield table, epoch.arrival_us
        if tied:
            yield merge_ties(tied), epoch.arrival_us


def lost_rows(folder: Path, epochs: Sequence[Epoch], problem: ExtentDamaged) -> ExtentDamaged:
    """Return an error that names the log, epochs and timestamps of damaged rows."""
    first, last = epochs[0], epochs[-1]
    numbers = f"epoch {first.number}" if first is last else f"epochs {first.number} to {last.number}"
    spans = [ts for epoch in epochs for ts in (epoch.min_ts, epoch.max_ts) if ts is not None]
    times = f" with timestamps from {_moment(min(spans))} to {_moment(max(spans))}" if spans else ""
    rows = sum(epoch.rows for epoch in epochs)
    return ExtentDamaged(f"{rows:,} rows of {folder.name}, {numbers},{times} cannot be read: {problem}")


def _moment(ts_us: int) -> str:
    return str(np.datetime64(ts_us, "us"))
