"""State of session windows: rows of open sessions, shared by queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import stored_as
from slicemill.columns.pieces import Slice
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.time import BEGINNING, END


@stored_as("sessions.member", version=1)
@dataclass(slots=True)
class SessionMemberState:
    """Progress of one query.

    `first` is the number of its first row. Sessions that ended before `closed` have been emitted. `held`
    is the earliest end of an open session.
    """

    definition: object
    first: int = 0
    closed: int = BEGINNING
    held: int | None = None
    failure: str | None = None


@stored_as("sessions", version=1)
@dataclass(slots=True)
class SessionState:
    """Rows of open sessions in order of arrival.

    `taken` counts all rows that have arrived.
    """

    pieces: list[Slice] = field(default_factory=list)
    taken: int = 0
    members: dict[str, SessionMemberState] = field(default_factory=dict)

    def hand_over(self, definitions: Mapping[str, object], successors: Mapping[str, str]) -> None:
        """Rename the state of replaced queries to the names of their successors."""
        for name, before in successors.items():
            if name in definitions and before in self.members:
                self.members[name] = replace(self.members.pop(before), definition=definitions[name])

    def adopt(self, definitions: Mapping[str, object]) -> None:
        """Restore state for these queries.

        New queries start empty; state of removed queries is dropped.
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
        """Convert stored rows to these columns.

        New columns are NULL in old rows, which no query reads there. Columns that no query reads are
        dropped.
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


# Session borders, found in one pass over rows sorted by key and time.
#
# Each tuple has an end: its time plus the gap, or the time in a column. A session is open until the latest
# end of its tuples. The next tuple of the key belongs to the session unless it is later. A tuple that
# satisfies CLOSE WHEN is the last tuple of its session.
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
    """Ended sessions: gap index, row range [start, stop), and end time."""

    gaps: Int64s
    starts: Int64s
    stops: Int64s
    until: Int64s


@dataclass(frozen=True, slots=True)
class SessionSegments:
    """Ended sessions, and the ends and rows of open sessions.

    `held` has the earliest end of an open session per gap, None if no session is open. `is_open` marks the
    rows of open sessions.
    """

    ended: EndedSessions
    held: tuple[int | None, ...]
    is_open: Bools


def sessions_of_gaps(
    keys: Int64s, times: Int64s, closes: Bools, gaps: Int64s, now: int, closed: int
) -> SessionSegments:
    """Return the sessions for several ascending gaps.

    Sessions that ended before `closed` are omitted.

    >>> found = sessions_of_gaps(
    ...     np.zeros(3, np.int64), np.array([0, 2, 5]), np.zeros(3, np.bool_), np.array([1, 2, 9]), 6, 0
    ... )
    >>> found.ended.gaps.tolist(), found.ended.starts.tolist(), found.ended.stops.tolist()
    ([0, 0, 1], [0, 1, 0], [1, 2, 2])
    >>> found.ended.until.tolist()
    [1, 3, 4]
    >>> found.held, found.is_open.tolist()
    ((6, 7, 14), [True, True, True])
    """
    which, starts, stops, until, held, is_open = _find_sessions(keys, times, closes, gaps, now, closed)
    earliest = tuple(None if end == END else end for end in held.tolist())
    return SessionSegments(EndedSessions(which, starts, stops, until), earliest, is_open)


@kernel
def _find_sessions(
    keys: Int64s, times: Int64s, closes: Bools, gaps: Int64s, now: int, closed: int
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Bools]:
    """Return the ended sessions of all gaps, in the order of the pass."""
    rows, many = len(keys), len(gaps)
    most = many  # upper bound of the number of sessions
    for i in range(1, rows):
        if closes[i - 1] or keys[i] != keys[i - 1] or times[i] - times[i - 1] > gaps[0]:
            most += many
    which, starts = np.empty(most, np.int64), np.empty(most, np.int64)
    stops, until = np.empty(most, np.int64), np.empty(most, np.int64)
    held = np.full(many, END, np.int64)
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
                held[gap] = min(held[gap], end)
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
        held,
        is_open,
    )


def sessions_until(
    keys: Int64s, times: Int64s, ends: Int64s, closes: Bools, now: int, closed: int
) -> SessionSegments:
    """Return the sessions whose tuples have an explicit end (`ends`)."""
    starts, until = session_borders(keys, times, ends, closes)
    stops = np.append(starts[1:], len(keys))[: len(starts)]
    opened = (until >= now) | (until >= FOREVER)
    done = ~opened & (until >= closed)
    held = int(until[opened].min()) if opened.any() else None
    ended = EndedSessions(np.zeros(done.sum(), np.int64), starts[done], stops[done], until[done])
    return SessionSegments(ended, (held,), np.repeat(opened, stops - starts))


@kernel
def to_the_end(order: Int64s, keys: Int64s, needed: Bools) -> Bools:
    """Return the needed rows and all later rows of their keys.

    A session may have ended for one query and be open for another query. Its last row must stay stored,
    because the row determines the end of the session.
    """
    out = np.zeros(len(order), np.bool_)
    stays = False
    for i in range(len(order)):
        row = order[i]
        stays = needed[row] or (stays and keys[row] == keys[order[i - 1]])
        out[row] = stays
    return out


@kernel
def session_borders(keys: Int64s, times: Int64s, ends: Int64s, closes: Bools) -> tuple[Int64s, Int64s]:
    """Return the first row and the end of each session."""
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
