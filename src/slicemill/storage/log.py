"""The index of a log: its epochs, and the extents of their rows.

A log is a stream, a derived stream or a result: the epochs that records have appended to it, in order. Epochs
are numbered by records, one sequence for the whole home, so a log's epochs have gaps. The index is kept in
columns of integers, some 80 bytes for an epoch of one extent, because a log of a day has millions of them:

    epochs   number  arrival_us  min_ts  max_ts  rows so far  extents so far
    extents  segment (position in a list of names)  offset  length  rows

Freed epochs leave from the front. Only `HomeState.apply` changes an index; any thread may read it.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slicemill.esl.types.schema import Schema
from slicemill.storage.arrow_schema import conform, from_arrow, with_system_columns
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.order import merge_sorted
from slicemill.storage.segments import Extent, parse_segment, read_extent
from slicemill.storage.ties import ties_of, untied

# Stands for "no timestamp" in a column of integers.
_NONE = -(2**63)

EPOCH_COLUMNS = ("number", "arrival_us", "min_ts", "max_ts", "rows_so_far", "extents_so_far")
EXTENT_COLUMNS = ("segment", "offset", "length", "rows")


class Epoch(NamedTuple):
    """What one record appended to a log."""

    number: int
    extents: tuple[Extent, ...]
    rows: int
    bytes: int
    min_ts: int | None
    max_ts: int | None
    arrival_us: int


class LogColumns(NamedTuple):
    """An index as snapshots store it; the columns as in the drawing above."""

    epochs: list[array[int]]
    extents: list[array[int]]
    segments: list[str]


class Log:
    """The index of one log."""

    def __init__(self, name: str, folder: Path, columns: pa.Schema, files: FileSystem = LOCAL) -> None:
        self.name = name
        self.folder = folder
        self.columns = columns
        self.first = 0
        self.freed = -1  # the last epoch that was here and is freed: who has not read it has missed something
        self.head = -1
        self.max_ts: int | None = None
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
    def schema(self) -> Schema:
        """The ESL columns."""
        return from_arrow(self.columns)

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
        """How many epochs are still there."""
        return len(self._epochs[0]) - self._start

    def epochs(self, after: int = -1, upto: int | None = None) -> list[Epoch]:
        """The epochs after number `after` (a cursor: the last epoch read), up to and with `upto`."""
        with self._lock:
            numbers = self._epochs[0]
            begin = bisect_right(numbers, after, lo=self._start)
            end = len(numbers) if upto is None else bisect_right(numbers, upto, lo=begin)
            return [self._epoch(position) for position in range(begin, end)]

    def rows_after(self, after: int) -> int:
        """How many rows the epochs after a cursor have."""
        with self._lock:
            numbers = self._epochs[0]
            begin = bisect_right(numbers, after, lo=self._start)
            return self._rows_until(len(numbers)) - self._rows_until(begin)

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
            position = max(len(numbers) - count, self._start)
            return numbers[position] if position < len(numbers) else self.head + 1

    def read(self, epoch: Epoch, needed: frozenset[str] = frozenset()) -> pa.Table:
        """The rows of an epoch; see `read_epochs`, which does the same in another process."""
        return read_epochs(self.folder, self.columns, [epoch], needed, self._files)

    def append(
        self,
        number: int,
        extents: Iterable[Sequence[Any]],
        min_ts: int | None,
        max_ts: int | None,
        arrival_us: int,
    ) -> None:
        """Add an epoch; extents are given as (segment, offset, length, rows)."""
        with self._lock:
            rows = self._rows_until(len(self._epochs[0]))
            segment_indexes, offsets, lengths, counts = self._extents
            for segment, offset, length, count in extents:
                segment_indexes.append(self._segment_index(segment))
                offsets.append(offset)
                lengths.append(length)
                counts.append(count)
                rows += count
                self._bytes += length
            numbers, arrivals, least, greatest, rows_so_far, extents_so_far = self._epochs
            numbers.append(number)
            arrivals.append(arrival_us)
            least.append(_NONE if min_ts is None else min_ts)
            greatest.append(_NONE if max_ts is None else max_ts)
            rows_so_far.append(rows)
            extents_so_far.append(self._freed_extents + len(segment_indexes))
            self.head = number
            if max_ts is not None and (self.max_ts is None or max_ts > self.max_ts):
                self.max_ts = max_ts

    def free(self, first: int) -> list[str]:
        """Forget the epochs before `first`; the segments of which no extent is left."""
        with self._lock:
            self.first = max(self.first, first)
            end = bisect_left(self._epochs[0], first, lo=self._start)
            if end == self._start:
                return []
            self.freed = self._epochs[0][end - 1]
            begin_extent, end_extent = self._extents_until(self._start), self._extents_until(end)
            segment_indexes, _, lengths, _ = self._extents
            emptied = []
            for position in range(begin_extent, end_extent):
                self._bytes -= lengths[position]
                segment = self._segments[segment_indexes[position]]
                self._live[segment] -= 1
                if not self._live[segment]:
                    emptied.append(segment)
            self._start = end
            if self._start * 2 > len(self._epochs[0]):
                self._compact()
            return [segment for segment in emptied if not self._live.get(segment)]

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

    def _rows_until(self, position: int) -> int:
        """The rows before a position, with all that was freed."""
        return self._epochs[4][position - 1] if position else self._freed_rows

    def _extents_until(self, position: int) -> int:
        """The position of the first extent of the epoch at a position."""
        return self._epochs[5][position - 1] - self._freed_extents if position else 0

    def _epoch(self, position: int) -> Epoch:
        number, arrival_us, min_ts, max_ts, _, _ = (column[position] for column in self._epochs)
        segment_indexes, offsets, lengths, rows = self._extents
        begin, end = self._extents_until(position), self._extents_until(position + 1)
        extents = tuple(
            Extent(self._segments[segment_indexes[i]], offsets[i], lengths[i], rows[i])
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


def read_epochs(
    folder: Path,
    columns: pa.Schema,
    epochs: Iterable[Epoch],
    needed: frozenset[str] = frozenset(),
    files: FileSystem = LOCAL,
) -> pa.Table:
    """The rows of epochs sorted by (`_ts`, `_seq`), with `_ts`, `_seq` and `_arr` before the columns.

    Nothing is copied unless times of extents overlap. A column that was not stored is NULL; an extent that
    lacks a column which the reader needs was stored when that reader was not there: it is left out.
    """
    schema = with_system_columns(columns)
    found = stored_tables(folder, epochs, needed, files)
    tables = [conform(table, schema, arrival_us) for table, arrival_us in found]
    return merge_sorted(tables) if tables else schema.empty_table()


def stored_tables(
    folder: Path, epochs: Iterable[Epoch], needed: frozenset[str] = frozenset(), files: FileSystem = LOCAL
) -> Iterator[tuple[pa.Table, int]]:
    """The extents of epochs as they were stored, and when their epochs arrived; see `read_epochs`.

    What cells have found together, rows with ties, is put together here, for all who read logs.
    """
    for epoch in epochs:
        tied = []
        for extent in epoch.extents:
            if extent.rows:
                table = read_extent(folder, extent, files)
                if needed and not needed.issubset(table.column_names):
                    continue
                if ties_of(table):
                    tied.append(table)
                else:
                    yield table, epoch.arrival_us
        if tied:
            yield untied(tied), epoch.arrival_us
