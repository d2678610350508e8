"""State of session windows: rows of open sessions, shared by queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import stored_as
from slicemill.columns.keys import GrowingRows, Keys, distinct_keys, extend_array, mostly_unused, to_array
from slicemill.columns.pieces import Slice
from slicemill.columns.ranges import by_number, last_of_each
from slicemill.functions.vectors import numbers as integers
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.time import BEFORE_ALL, BEGINNING, END


@stored_as("sessions.member", version=1)
@dataclass(slots=True)
class SessionMemberState:
    """State of one query that shares stored rows with other queries.

    `first` is the number of the first row that the query reads. Sessions that ended before `closed` have been
    emitted. `held` is the earliest end of an open session.
    """

    definition: object
    first: int = 0
    closed: int = BEGINNING
    held: int | None = None
    failure: str | None = None


@stored_as("sessions", version=1)
@dataclass(slots=True)
class SessionState:
    """State of session windows: the rows of open sessions, in order of arrival (`SessionRows`).

    Some rows of ended sessions may remain. `taken` counts all rows that have arrived so far.
    """

    pieces: list[Slice] = field(default_factory=list)
    taken: int = 0
    members: dict[str, SessionMemberState] = field(default_factory=dict)

    def hand_over(self, definitions: Mapping[str, object], successors: Mapping[str, str]) -> None:
        """Move the state of each replaced query to the query that replaces it."""
        for name, before in successors.items():
            if name in definitions and before in self.members:
                self.members[name] = replace(self.members.pop(before), definition=definitions[name])

    def adopt(self, definitions: Mapping[str, object]) -> None:
        """Restrict the state to the queries in `definitions`.

        New queries start with empty state. The state of removed queries is dropped.
        """
        known = {
            name: member
            for name, member in self.members.items()
            if name in definitions and member.definition == definitions[name]
        }
        self.members = {
            name: known.get(name) or SessionMemberState(what, self.taken)
            for name, what in definitions.items()
        }

    def fit(self, schema: pa.Schema) -> None:
        """Convert the stored rows to `schema`: add missing columns, and drop columns that no query reads.

        A new column is NULL in old rows. No query reads the column in these rows.
        """
        if all(piece.table.schema.equals(schema) for piece in self.pieces):
            return
        self.pieces = [Slice(_fit_schema(piece.table, schema)) for piece in self.pieces]


def _fit_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    have = set(table.column_names)
    return pa.table(
        {
            column.name: table.column(column.name).cast(column.type)
            if column.name in have
            else pa.nulls(table.num_rows, column.type)
            for column in schema
        },
        schema=schema,
    )


# Rows of open sessions by key. Each row refers to the previous row of its key:
#
#     position    0   1   2   3   4   5
#     key         a   b   a   c   b   a         last      a  b  c
#     previous    -   -   0   -   1   2                   5  4  3
#
# A micro-batch reads only the keys with new rows and the keys whose sessions have ended. If these keys have
# many of the rows, all rows are sorted by key instead. When a session has ended, its rows are unlinked: they
# are removed from the list of their key. Unlinked rows are dropped when they are the majority.


_DENSE = 8  # if more than 1/8 of the linked rows are read, all rows are sorted by key


def _no_positions() -> Int64s:
    return np.zeros(0, np.int64)


def _no_numbers() -> Int32s:
    return np.zeros(0, np.int32)


@dataclass(frozen=True)
class StoredRows:
    """Stored rows of some keys, sorted by key and arrival.

    `order` has the positions of the sorted rows in `table`. `keys` has their key numbers. `positions` has
    their positions in `SessionRows`.
    """

    table: pa.Table
    order: Int64s
    keys: Int64s
    positions: Int64s

    @cached_property
    def _columns(self) -> dict[str, pa.Array]:
        return {}

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            self._columns[name] = to_array(self.table.column(name))
        return self._columns[name]

    def integers(self, name: str) -> Int64s:
        found: Int64s = integers(self.column(name))
        return found


@dataclass(slots=True)
class SessionRows:
    """Rows of open sessions, as one linked list for each key.

    `columns` are the names of the key columns. `numbers` has the key number of each row, -1 for an unlinked
    row. `lengths` has the number of linked rows of each key. `linked` is the number of all linked rows.
    """

    columns: Sequence[str]
    keys: Keys = field(default_factory=Keys)
    rows: GrowingRows = field(default_factory=GrowingRows)
    previous: Int64s = field(default_factory=_no_positions)
    last: Int64s = field(default_factory=_no_positions)
    numbers: Int32s = field(default_factory=_no_numbers)
    lengths: Int64s = field(default_factory=_no_positions)
    linked: int = 0

    @staticmethod
    def restored(columns: Sequence[str], pieces: Sequence[Slice]) -> SessionRows:
        """Return session rows that were stored as pieces (parts of tables), linked by key."""
        found = SessionRows(columns)
        for piece in pieces:
            found.rows = GrowingRows([*found.rows.pieces, piece], found.rows.rows + len(piece.table))
            found._link(piece.table)
        return found

    def add(self, new: pa.Table) -> Int32s:
        """Append new rows, which are in order of arrival, and return their key numbers."""
        if not len(new):
            return _no_numbers()
        self.rows.add(new)
        return self._link(new)

    def _link(self, new: pa.Table) -> Int32s:
        """Append the rows of `new` to the linked lists of their keys, and return their key numbers."""
        columns = [new.column(name) for name in self.columns]
        numbered = self.keys.number(distinct_keys(columns, len(new)), columns)
        count, first = len(self.keys) or 1, self.rows.rows - len(new)
        self.previous = extend_array(self.previous, self.rows.rows, -1)
        self.numbers = extend_array(self.numbers, self.rows.rows)
        self.last, self.lengths = extend_array(self.last, count, -1), extend_array(self.lengths, count)
        self.linked += len(new)
        self.numbers[first:] = numbered
        _link_rows(self.numbers, first, self.previous, self.last, self.lengths)
        return numbered

    def is_dense(self, keys: Int64s) -> bool:
        """Return True if `keys` have so many rows that it is faster to read the rows of all keys."""
        return int(self.lengths[keys].sum()) * _DENSE >= self.linked

    def of(self, keys: Int64s) -> StoredRows:
        """Return the stored rows of some keys, sorted by key and arrival."""
        if self.is_dense(keys):
            linked = np.flatnonzero(self.numbers >= 0)
            order, numbers, _ = by_number(self.numbers[linked], len(self.last))
            positions = linked[order]
            table = pa.concat_tables([piece.table for piece in self.rows.pieces])
            return StoredRows(table, positions, numbers.astype(np.int64), positions)
        rows = int(self.lengths[keys].sum())
        positions, owners = _linked_rows(keys, self.previous, self.last, rows)
        return StoredRows(self.rows.at(positions), np.arange(rows), owners, positions)

    def unlink(self, rows: StoredRows, needed: Bools) -> bool:
        """Remove rows from the linked list of their key, up to the first row that is still `needed`.

        Return True if rows and keys were dropped, which changes all positions and key numbers.

        A session may have ended for one query and be open for another query. The last row of the session must
        stay linked, because the row determines the end of the session.
        """
        self.linked -= _unlink(
            rows.keys, rows.positions, needed, self.previous, self.last, self.numbers, self.lengths
        )
        if not mostly_unused(self.rows.rows, self.linked):
            return False
        positions, alive = np.flatnonzero(self.numbers >= 0), self.lengths > 0
        self.numbers = self.keys.keep(alive)[self.numbers[positions]]
        self.rows = self.rows.only(positions) if len(positions) else GrowingRows()
        self.previous = np.full(len(positions), -1, np.int64)
        self.last = np.full(max(int(alive.sum()), 1), -1, np.int64)
        self.lengths = np.zeros(len(self.last), np.int64)
        _link_rows(self.numbers, 0, self.previous, self.last, self.lengths)
        return True


@kernel
def _link_rows(keys: Int32s, first: int, previous: Int64s, last: Int64s, lengths: Int64s) -> None:
    for i in range(first, len(keys)):
        previous[i] = last[keys[i]]
        last[keys[i]] = i
        lengths[keys[i]] += 1


@kernel
def _linked_rows(keys: Int64s, previous: Int64s, last: Int64s, rows: int) -> tuple[Int64s, Int64s]:
    """Return the positions of the rows of some keys, in order of arrival, and the key of each row."""
    positions, owners = np.empty(rows, np.int64), np.empty(rows, np.int64)
    end = rows
    for i in range(len(keys) - 1, -1, -1):
        position = last[keys[i]]
        while position >= 0:
            end -= 1
            positions[end], owners[end] = position, keys[i]
            position = previous[position]
    return positions, owners


@kernel
def _unlink(
    keys: Int64s,
    positions: Int64s,
    needed: Bools,
    previous: Int64s,
    last: Int64s,
    numbers: Int32s,
    lengths: Int64s,
) -> int:
    """Unlink the rows that precede the first needed row of their key, and return the number of these rows."""
    unlinked = 0
    i = 0
    while i < len(keys):
        key, begin = keys[i], i
        while i < len(keys) and keys[i] == key and not needed[i]:
            numbers[positions[i]] = -1
            i += 1
        unlinked += i - begin
        lengths[key] -= i - begin
        if i < len(keys) and keys[i] == key:
            previous[positions[i]] = -1
        else:
            last[key] = -1
        while i < len(keys) and keys[i] == key:
            i += 1
    return unlinked


class OpenSessions:
    """Ends of the open sessions of all keys, for queries that read the same rows.

    `_latest` has for each key the time of the last session's last row, END if the session is not open. A
    session that was closed by a row at the current watermark stays open until the watermark passes that time.
    """

    def __init__(self, gaps: Int64s, keys: int) -> None:
        self._gaps = gaps
        self._latest = np.full(keys, END)
        self._closing = BEFORE_ALL

    def update(self, keys: Int64s, found: SessionSegments, ends: Int64s, now: int) -> None:
        """Replace the ends of the open sessions of some keys.

        `ends` has the next end of an open session of each key. The method lowers these ends.
        """
        self._latest = extend_array(self._latest, len(ends), END)
        self._latest[keys] = END
        self._latest[found.keys] = found.latest
        is_open = found.latest < END
        own, latest = found.keys[is_open], found.latest[is_open]
        # Only sessions with a gap of at least `lowest` are still open.
        lowest = np.minimum(min(now, FOREVER) - latest, self._gaps[-1])
        gaps = self._gaps[np.searchsorted(self._gaps, lowest)]
        ends[own] = np.minimum(ends[own], _add_gap(latest, gaps))
        ends[found.closing] = np.minimum(ends[found.closing], now)
        if len(found.closing):
            self._closing = now

    def held(self, now: int) -> list[int | None]:
        """Return for each gap the earliest end of its open sessions; None if no session is open."""
        found: list[int | None] = []
        for gap in self._gaps.tolist():
            first = BEFORE_ALL if gap >= FOREVER else min(now, FOREVER) - gap
            latest = int(self._latest[self._latest >= first].min(initial=END))
            end = END if latest == END else int(_add_gap(np.array([latest]), gap)[0])
            end = min(end, self._closing) if self._closing >= now else end
            found.append(None if end == END else end)
        return found


def _add_gap(times: Int64s, gaps: Int64s | int) -> Int64s:
    """Return the ends of sessions whose last rows have the given times."""
    gaps = np.asarray(gaps)
    return np.where(gaps >= FOREVER, FOREVER, np.minimum(times, FOREVER - gaps) + gaps)


# Session borders, found in one pass over rows sorted by key and time.
#
# Each tuple has an end: its time plus the gap, or the time in a column. A session is open until the latest
# end of its tuples. The next tuple of the key belongs to the session unless the tuple is later than this end.
# A tuple that satisfies CLOSE WHEN is the last tuple of its session.
#
#     gap 3      0  1  2  3  4  5  6  7  8  9  10
#     tuples     a     b        c              d
#                [a----------)                        a: open until 3
#                      [b----------)                  b: open until 5
#                               [c---------)          c is in time: open until 8
#                                              [d     d starts another session
#
# A session with a smaller gap lies within a session with a larger gap. So one pass finds the sessions of all
# gaps: a distance between two tuples ends the sessions of all gaps that are smaller than the distance.
#
#     distances     2   1   9   3   2
#     gap 4       [ .   .   . ) [ .   .   . )
#     gap 2       [ .   .   . ) [ . ) [ .   . )
#     gap 1       [ . ) [ . . ) [ . ) [ . ) [ . )


FOREVER = 2**62  # an end that is never reached


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """Ended sessions, each with the index of its gap, its range [start, stop) of sorted rows, and its end."""

    gaps: Int64s
    starts: Int64s
    stops: Int64s
    until: Int64s


@dataclass(frozen=True, slots=True)
class SessionSegments:
    """Result of one pass over sorted rows: ended sessions and open sessions.

    `is_open` marks the rows of open sessions. `keys` has each key once. `latest` has the end of the last
    session of each key without the gap, END if this session is not open. `closing` are the keys of open
    sessions that a row has closed.
    """

    ended: EndedSessions
    is_open: Bools
    keys: Int64s
    latest: Int64s
    closing: Int64s


def sessions_of_gaps(
    keys: Int64s, times: Int64s, closes: Bools, gaps: Int64s, now: int, closed: int
) -> SessionSegments:
    """Find the sessions of several ascending gaps in one pass over rows sorted by key and time.

    Sessions that ended before `closed` are omitted.

    >>> found = sessions_of_gaps(
    ...     np.zeros(3, np.int64), np.array([0, 2, 5]), np.zeros(3, np.bool_), np.array([1, 2, 9]), 6, 0
    ... )
    >>> found.ended.gaps.tolist(), found.ended.starts.tolist(), found.ended.stops.tolist()
    ([0, 0, 1], [0, 1, 0], [1, 2, 2])
    >>> found.ended.until.tolist()
    [1, 3, 4]
    >>> found.latest.tolist(), found.is_open.tolist()
    ([5], [True, True, True])
    """
    *ended, is_open = _find_sessions(keys, times, closes, gaps, now, closed)
    return _segments(EndedSessions(*ended), is_open, keys, closes, times)


def _segments(
    ended: EndedSessions, is_open: Bools, keys: Int64s, closes: Bools, ends: Int64s
) -> SessionSegments:
    last = np.flatnonzero(last_of_each(keys.astype(np.int32)))
    latest = np.where(is_open[last] & ~closes[last], ends[last], END)
    return SessionSegments(ended, is_open, keys[last], latest, keys[is_open & closes])


@kernel
def _find_sessions(
    keys: Int64s, times: Int64s, closes: Bools, gaps: Int64s, now: int, closed: int
) -> tuple[Int64s, Int64s, Int64s, Int64s, Bools]:
    """Return the ended sessions of all gaps in the order in which the pass finds them.

    The last result marks the rows of open sessions.
    """
    rows, many = len(keys), len(gaps)
    most = many  # upper bound of the number of sessions
    for i in range(1, rows):
        if closes[i - 1] or keys[i] != keys[i - 1] or times[i] - times[i - 1] > gaps[0]:
            most += many
    which, starts = np.empty(most, np.int64), np.empty(most, np.int64)
    stops, until = np.empty(most, np.int64), np.empty(most, np.int64)
    is_open = np.zeros(rows, np.bool_)
    begun = np.zeros(many, np.int64)
    count = 0
    for i in range(1, rows + 1):
        last = i - 1
        cut = i == rows or closes[last] or keys[i] != keys[last]
        if not cut and times[i] - times[last] <= gaps[0]:
            continue
        for gap in range(many):
            if not cut and times[i] - times[last] <= gaps[gap]:
                break
            end = times[last]
            if not closes[last]:
                end = FOREVER if gaps[gap] >= FOREVER else min(end, FOREVER - gaps[gap]) + gaps[gap]
            if end >= now or end >= FOREVER:
                if gap == many - 1:
                    is_open[begun[gap] : i] = True
            elif end >= closed:
                which[count], starts[count], stops[count], until[count] = gap, begun[gap], i, end
                count += 1
            begun[gap] = i
    return (
        which[:count].copy(),
        starts[:count].copy(),
        stops[:count].copy(),
        until[:count].copy(),
        is_open,
    )


def sessions_until(
    keys: Int64s, times: Int64s, ends: Int64s, closes: Bools, now: int, closed: int
) -> SessionSegments:
    """Find sessions where a column gives the end of each tuple (`ends`), in rows sorted by key and time."""
    starts, until = session_borders(keys, times, ends, closes)
    stops = np.append(starts[1:], len(keys))[: len(starts)]
    opened = (until >= now) | (until >= FOREVER)
    done = ~opened & (until >= closed)
    ended = EndedSessions(np.zeros(done.sum(), np.int64), starts[done], stops[done], until[done])
    lengths = stops - starts
    return _segments(ended, np.repeat(opened, lengths), keys, closes, np.repeat(until, lengths))


@kernel
def session_borders(keys: Int64s, times: Int64s, ends: Int64s, closes: Bools) -> tuple[Int64s, Int64s]:
    """Return the index of the first row of each session, and the end time of each session."""
    starts, until = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    count = 0
    closed = True
    for i in range(len(keys)):
        if closed or keys[i] != keys[i - 1] or times[i] > until[count - 1]:
            starts[count] = i
            until[count] = times[i]
            count += 1
        until[count - 1] = max(until[count - 1], ends[i])
        closed = bool(closes[i])
        if closed:
            until[count - 1] = times[i]
    return starts[:count].copy(), until[:count].copy()
