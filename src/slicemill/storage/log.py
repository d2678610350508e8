"""The index of a log: its epochs, and the extents of their rows.

A log is a stream, a derived stream or a result: the epochs that records have appended to it, in order. Epochs
are numbered by records, one sequence for the whole home, so a log's epochs have gaps. The index is kept in
columns of integers, some 90 bytes for an epoch of one extent, because a log of a day has millions of them:

    epochs   number  arrival_us  min_ts  max_ts  rows so far  extents so far
    extents  segment (position in a list of names)  offset  length  rows  checksum

Freed epochs leave from the front. Of a changelog they are folded instead: its first epoch is then its *base*,
the table that they came to, as rows that are inserted, under the number of the last of them:

    epochs   3    5    8 │ 9   12            log.fold(8, …)     8 │ 9   12       freed = base = 8
             changes     │ changes                           rows │ changes

So whoever reads from the beginning gets what makes the table of now. Whoever has read some of the epochs that
are gone (`missed`) has to begin anew. Where the definition of a changelog is replaced, an epoch deletes all
rows of its table, and the table begins anew behind it (`begun_after`). Whoever has read some of what was
before reads the deletes; from the beginning (-1) all of that is left out, as it comes to nothing. A log that
is paused shows the definition of then, until it goes on. Only `HomeState.apply` changes an index; any thread
may read it.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.types.schema import OP, Schema
from slicemill.storage.arrow_schema import TS, conform, from_arrow, with_system_columns
from slicemill.storage.epochs import Epoch, lost_rows, neighbouring, read_epochs
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.segments import (
    UNVERIFIED,
    Extent,
    ExtentDamaged,
    ExtentGone,
    parse_segment,
    read_extent,
    reader_of,
)
from slicemill.storage.ties import has_ties

# Of this many epochs the oldest arrival is looked for.
_LOOKED_AT = 1_000

# Stands for "no timestamp" in a column of integers.
_NONE = -(2**63)

EPOCH_COLUMNS = ("number", "arrival_us", "min_ts", "max_ts", "rows_so_far", "extents_so_far")
EXTENT_COLUMNS = ("segment", "offset", "length", "rows", "crc")


class EpochSpans(NamedTuple):
    """The epochs of a log, in columns: number, least and greatest timestamp, rows; those with rows only."""

    numbers: NDArray[np.int64]
    first_ts: NDArray[np.int64]
    last_ts: NDArray[np.int64]
    rows: NDArray[np.int64]


class LogColumns(NamedTuple):
    """An index as snapshots store it; the columns as in the drawing above."""

    epochs: list[array[int]]
    extents: list[array[int]]
    segments: list[str]


class LogEnd(NamedTuple):
    """Where a log ends: the number of its last epoch, -1 before the first, and its greatest timestamp."""

    epoch: int = -1
    max_ts: int | None = None


class Hold(NamedTuple):
    """Where a log ends for all who read it; and the last record of the home when that was said."""

    end: LogEnd
    as_of: int


class LogOutline(NamedTuple):
    """What another process needs to read given epochs of a log."""

    name: str
    folder: Path
    columns: list[tuple[int, pa.Schema, pa.Schema]]
    hold: Hold | None


class Log:
    """The index of one log. With a `hold` it ends there for all who read it, though more is written to it."""

    def __init__(self, name: str, folder: Path, columns: pa.Schema, files: FileSystem = LOCAL) -> None:
        self.name = name
        self.folder = folder
        # From which epoch on, which, and how they are stored.
        self._columns = [(0, columns, with_system_columns(columns))]
        self.first = 0
        self.freed = -1  # the last epoch that was here and is freed: who has not read it has missed something
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
        """What a process without the index needs to read epochs; `outlined` takes it."""
        return LogOutline(self.name, self.folder, self._columns, self.hold)

    @classmethod
    def outlined(cls, outline: LogOutline) -> Log:
        """Return a log without epochs, which reads those that it is given."""
        log = cls(outline.name, outline.folder, outline.columns[-1][1])
        log._columns, log.hold = outline.columns, outline.hold
        return log

    @property
    def columns(self) -> pa.Schema:
        """The columns of rows that come from now on."""
        return self._columns[-1][1]

    @property
    def columns_shown(self) -> pa.Schema:
        """The columns of the definition whose rows can be read: while it is held, that of then."""
        return self._shown()[1]

    @property
    def begun_after(self) -> int:
        """Of a changelog: the epochs up to this one come to no rows."""
        return _begun_after(*self._columns[-1])

    @property
    def shown_begun_after(self) -> int:
        """The same of the definition whose rows can be read."""
        return _begun_after(*self._shown())

    def _shown(self) -> tuple[int, pa.Schema, pa.Schema]:
        hold, found = self.hold, self._columns[-1]
        if hold is not None:
            # What a record changes holds from its own epoch on, or behind the deletes that it has.
            found = next(one for one in reversed(self._columns) if one[0] <= hold.as_of + 1)
        return found

    def schema_shown(self, now: Schema) -> Schema:
        """The schema of what can be read: `now`, if it is of the definition of now.

        Changes of another one need no key: each names the row that it changes.
        """
        if self._shown() is self._columns[-1]:
            return now
        return replace(from_arrow(self.columns_shown), changelog=OP in self.columns_shown.names)

    @property
    def changes(self) -> bool:
        """Is it a changelog? Read from its first epoch on, it comes to its table, whatever was folded."""
        return OP in self.columns.names

    @property
    def first_columns(self) -> pa.Schema:
        """The columns that its first rows had."""
        return self._columns[0][1]

    @property
    def changes_of_columns(self) -> list[tuple[int, pa.Schema]]:
        """From which epochs on rows had other columns, and which."""
        return [(epoch, columns) for epoch, columns, _ in self._columns[1:]]

    def change_columns(self, epoch: int, columns: pa.Schema) -> None:
        """Rows of an epoch and of all that follow have these columns.

        A changelog begins anew there, also where its columns stay.
        """
        if columns.equals(self.columns, check_metadata=True):
            columns = self.columns  # readers ask whether they are the same ones
        self._columns = [*self._columns, (epoch, columns, with_system_columns(columns))]

    def widen(self, columns: pa.Schema) -> None:
        """All rows have these columns; what was stored without some of them has their defaults."""
        self._columns = [(0, columns, with_system_columns(columns))]

    def columns_at(self, epoch: int) -> pa.Schema:
        """The columns that the rows of an epoch have."""
        return next(columns for first, columns, _ in reversed(self._columns) if first <= epoch)

    def _stored_at(self, epoch: int) -> pa.Schema:
        return next(stored for first, _, stored in reversed(self._columns) if first <= epoch)

    @property
    def schema(self) -> Schema:
        """The ESL columns."""
        return from_arrow(self.columns)

    @property
    def head(self) -> int:
        """The last epoch that can be read; -1 before the first."""
        return self._read_end.epoch

    @property
    def max_ts(self) -> int | None:
        """The greatest timestamp that can be read."""
        return self._read_end.max_ts

    @property
    def _read_end(self) -> LogEnd:
        return self.end if self.hold is None else self.hold.end

    @property
    def rows(self) -> int:
        """The rows that are still there."""
        with self._lock:
            return self._rows_until(len(self._epochs[0])) - self._rows_until(self._start)

    @property
    def bytes(self) -> int:
        """The bytes of the extents that are still there."""
        return self._bytes

    def __len__(self) -> int:
        """How many epochs are still there, of those that can be read."""
        return self._until() - self._start

    def _until(self) -> int:
        """The position behind the last epoch that can be read."""
        numbers = self._epochs[0]
        return len(numbers) if self.hold is None else bisect_right(numbers, self.head, lo=self._start)

    @property
    def base(self) -> int | None:
        """The number of the first epoch, if it has the rows of a table instead of changes."""
        with self._lock:
            there = self._start < len(self._epochs[0]) and self._epochs[0][self._start] == self.freed
            return self.freed if there else None

    def missed(self, cursor: int) -> bool:
        """Has somebody who has read up to this epoch (-1: nothing) missed what is gone now?"""
        return 0 <= cursor < self.freed

    def covers(self, cursor: int) -> bool:
        """Return True if every epoch after a cursor is still there, or its base is."""
        return not self.missed(cursor) and (cursor >= 0 or self.freed < 0 or self.changes)

    def epochs(self, after: int = -1, upto: int | None = None, of_now: bool = False) -> list[Epoch]:
        """The epochs after number `after` (a cursor: the last epoch read), up to and with `upto`.

        From the beginning on, these are of the definition that is shown; `of_now` is for those who compute by
        the definition of now, and have nothing to read until it is shown.
        """
        with self._lock:
            begun = self.begun_after if of_now else self.shown_begun_after
            begin = bisect_right(self._epochs[0], begun if after < 0 else after, lo=self._start)
            end = self._until()
            if upto is not None:
                end = min(end, bisect_right(self._epochs[0], upto, lo=begin))
            return [self._epoch(position) for position in range(begin, end)]

    def all_epochs(self) -> list[Epoch]:
        """All epochs that are still there, whatever a pause holds back, and of all definitions."""
        with self._lock:
            return [self._epoch(position) for position in range(self._start, len(self._epochs[0]))]

    def spans(self) -> EpochSpans:
        """What is known of the epochs without reading any."""
        with self._lock:
            numbers, _, first_ts, last_ts, rows_so_far, _ = (
                np.array(column[self._start : self._until()], np.int64) for column in self._epochs
            )
            before = self._rows_until(self._start)
        rows = np.diff(rows_so_far, prepend=before)
        filled = rows > 0
        return EpochSpans(numbers[filled], first_ts[filled], last_ts[filled], rows[filled])

    def take(self, after: int, most_rows: float) -> tuple[list[Epoch], int | None]:
        """The first epochs after a cursor that have no more rows than that, one at least; and the least
        timestamp behind them. Rows are in order, so the next one has it."""
        with self._lock:
            rows_so_far, least = self._epochs[4], self._epochs[2]
            begin = self._behind(after)
            most = self._rows_until(begin) + most_rows
            until = max(self._until(), begin)
            end = min(max(bisect_right(rows_so_far, most, lo=begin, hi=until), begin + 1), until)
            left = next((ts for ts in islice(least, end, until) if ts != _NONE), None)
            return [self._epoch(position) for position in range(begin, end)], left

    def waiting(self, after: int, upto: int) -> tuple[int, int, int | None]:
        """How many epochs there are after a cursor and up to a number, how many rows they have, and when the
        first of them arrived."""
        with self._lock:
            numbers, arrivals = self._epochs[0], self._epochs[1]
            begin = self._behind(after)
            end = min(bisect_right(numbers, upto, lo=begin), self._until())
            if begin >= end:
                return 0, 0, None
            # Arrivals may step back with the clock, or with who writes; of many the first ones tell enough.
            oldest = min(arrivals[begin : min(end, begin + _LOOKED_AT)])
            return end - begin, self._rows_until(end) - self._rows_until(begin), oldest

    def last_before(self, ts: int) -> int:
        """The last epoch all of whose rows are before a time; -1 if there is none."""
        with self._lock:
            numbers, greatest, found = self._epochs[0], self._epochs[3], -1
            for position in range(self._start, len(numbers)):
                if greatest[position] != _NONE and greatest[position] >= ts:
                    break
                found = numbers[position]
            return found

    def rows_after(self, after: int) -> int:
        """How many rows the epochs after a cursor have."""
        with self._lock:
            end = self._until()
            begin = min(self._behind(after), end)
            return self._rows_until(end) - self._rows_until(begin)

    def first_arrived_after(self, arrival_us: int, upto: int) -> int:
        """The first epoch that arrived after a time; the one after `upto` if none up to there did.

        Epochs are freed in order, so this is what an age limit lets go. Arrivals may step back with the
        clock.
        """
        with self._lock:
            numbers, arrivals = self._epochs[0], self._epochs[1]
            end = bisect_right(numbers, upto, lo=self._start)
            for position in range(self._start, end):
                if arrivals[position] > arrival_us:
                    return numbers[position]
            return upto + 1

    def newest(self, count: int) -> int:
        """The number of the first of the `count` newest epochs; the one after the head if `count` is 0."""
        with self._lock:
            numbers = self._epochs[0]
            end = self._until()
            position = max(end - count, self._start)
            return numbers[position] if position < end else self.head + 1

    def read(self, epoch: Epoch, needed: frozenset[str] = frozenset()) -> pa.Table:
        """The rows of an epoch; see `read_epochs`, which does the same in another process."""
        if len(epoch.extents) == 1 and epoch.rows and not needed:
            # Nearly all epochs of a live query are such, and have a row or two: the rest would cost more.
            try:
                table = read_extent(self.folder, epoch.extents[0], self._files)
            except ExtentDamaged as problem:
                raise lost_rows(self.folder, [epoch], problem) from problem
            if table.schema.equals(self._stored_at(epoch.number)):
                return table
        return read_epochs(self.folder, self.columns_at(epoch.number), [epoch], needed, self._files)

    def scan(self, epochs: Iterable[Epoch], columns: Collection[str]) -> pa.Table:
        """`_ts` and some columns of epochs, one epoch after another; the other columns are not decoded."""
        wanted = {TS, *columns}
        shown = with_system_columns(self.columns_shown)
        schema = pa.schema([field for field in shown if field.name in wanted])
        parts = [schema.empty_table()]
        for run in neighbouring(epochs):
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
        """The epochs after a cursor and their rows, as of one moment, though some may be freed meanwhile."""
        while True:
            freed, epochs = self.freed, self.epochs(after)
            try:
                return epochs, [self.read(epoch) for epoch in epochs]
            except ExtentGone:
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
        """Add an epoch; extents are given as (segment, offset, length, rows, checksum).

        Records of FORMAT 5 have no checksum.
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
            least.append(_NONE if min_ts is None else min_ts)
            greatest.append(_NONE if max_ts is None else max_ts)
            rows_so_far.append(rows)
            extents_so_far.append(self._freed_extents + len(segment_indexes))
            known = [ts for ts in (self.end.max_ts, max_ts) if ts is not None]
            self.end = LogEnd(number, max(known, default=None))

    def free(self, first: int) -> list[str]:
        """Forget the epochs before `first`; the segments of which no extent is left."""
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
        """Put the rows of a table in the place of the epochs up to a number; segments without an extent."""
        with self._lock:
            emptied = self._free(upto + 1)
            self._compact()
            whole = map(_with_crc, extents)
            columns = [list(column) for column in zip(*whole, strict=True)] or [[] for _ in EXTENT_COLUMNS]
            segments = [self._segment_index(segment) for segment in columns[0]]
            rows = sum(columns[3])
            self._bytes += sum(columns[2])
            # Totals go on from what was freed, so that those behind the base stay what they are.
            rows_so_far, extents_so_far = self._freed_rows, self._freed_extents
            self._freed_rows -= rows
            self._freed_extents -= len(segments)
            for column, values in zip(self._extents, (segments, *columns[1:]), strict=True):
                column[:0] = array("q", values)
            times = (_NONE if ts is None else ts for ts in (min_ts, max_ts))
            for column, value in zip(
                self._epochs, (upto, arrival_us, *times, rows_so_far, extents_so_far), strict=True
            ):
                column.insert(0, value)
            return emptied

    def lose(self, lost: Collection[tuple[str, int]]) -> None:
        """Leave out the rows of extents that cannot be read, given as (segment, offset).

        The extents stay, without rows: readers skip them, and their segments are removed when freed.
        """
        with self._lock:
            indexes, offsets, _, counts, _ = self._extents
            missing = np.zeros(len(counts), np.int64)
            for place, (index, offset) in enumerate(zip(indexes, offsets, strict=True)):
                if (self._segments[index], offset) in lost:
                    missing[place], counts[place] = counts[place], 0
            # Totals count from the first epoch that was ever there, those that are freed included.
            missed_so_far = np.concatenate(([0], np.cumsum(missing)))
            rows_so_far = self._epochs[4]
            for position in range(self._start, len(rows_so_far)):
                rows_so_far[position] -= int(missed_so_far[self._extents_until(position + 1)])

    def is_used(self, segment: str) -> bool:
        """Has the segment an extent that is still there?"""
        with self._lock:
            return self._live.get(segment, 0) > 0

    def is_left_behind(self, segment: str) -> bool:
        """Has its writer appended to a later segment of this log since, so that this one grows no more?"""
        parsed = parse_segment(segment)
        with self._lock:
            return parsed is not None and parsed[1] < self._newest.get(parsed[0], -1)

    def used_segments(self) -> list[str]:
        """The segments that have an extent that is still there."""
        with self._lock:
            return [segment for segment, count in self._live.items() if count]

    def dump(self) -> LogColumns:
        """A copy of the index without what was freed."""
        with self._lock:
            gone = self._extents_until(self._start)
            return LogColumns(
                [column[self._start :] for column in self._epochs],
                [column[gone:] for column in self._extents],
                list(self._segments),
            )

    def load(self, stored: LogColumns) -> None:
        """Take over an index that `dump` has made; this one must be empty."""
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
        """The position of the first epoch after a cursor, of the definition of now if that is none."""
        return bisect_right(self._epochs[0], self.begun_after if after < 0 else after, lo=self._start)

    def _rows_until(self, position: int) -> int:
        """The rows before a position, with all that was freed."""
        return self._epochs[4][position - 1] if position else self._freed_rows

    def _extents_until(self, position: int) -> int:
        """The position of the first extent of the epoch at a position."""
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
            None if min_ts == _NONE else min_ts,
            None if max_ts == _NONE else max_ts,
            arrival_us,
        )

    def _compact(self) -> None:
        """Give back the memory of what was freed, and number the segments anew."""
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
