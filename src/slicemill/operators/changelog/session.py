"""Session windows with early emissions, processed row by row. The state has the open sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from slicemill.aggregates.definition import comparable
from slicemill.catalog.queries import SessionWindow
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.operators.changelog.group_rows import ChangingGroup, GroupCalls
from slicemill.operators.changelog.spec import SessionChanges
from slicemill.operators.row_step import RowStep, predicate, row_of_expressions, row_of_items, row_step
from slicemill.operators.step import StepContext
from slicemill.time import END
from slicemill.types import Row, Schema, Timed


@dataclass(slots=True)
class _ChangingSession:
    """Session of a group, from `start` to `end`.

    The end moves as rows arrive. It is None if it is not known.
    """

    group: ChangingGroup
    start: int
    end: int | None
    closed: bool = False
    changed: bool = True


@dataclass(slots=True)
class ChangingSessions:
    """Session aggregates with early emissions, which process rows one by one.

    `group` returns the group keys of a row. `end_of` returns the session end that a row causes; None for an
    open end. `closes` returns True for a row that ends its session.
    """

    operator: SessionChanges
    group: Callable[[Row], Row]
    end_of: Callable[[Timed], int | None]
    closes: Callable[[Row], bool]
    calls: GroupCalls
    inputs: int = 1
    waits_for_time: bool = True
    _sessions: ObjectsByKey[int, _ChangingSession] = field(init=False)  # open sessions by session number
    _latest: dict[Row, int] = field(default_factory=dict)  # number of the last session of each group
    _begun: int = 0  # number of sessions so far
    _since: int | None = None  # time of the first unemitted change
    _changed: set[int] = field(default_factory=set)  # numbers of sessions with unemitted changes
    # Heap of pairs (session end, session number). A pair is outdated if its session has been extended.
    _ends: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sessions = ObjectsByKey(_plain, self._restored)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        values = self.group(tuple_.row)
        number, session = self._session(comparable(values), values, tuple_.ts)
        self.calls.add(session.group, tuple_.row)
        end = self.end_of(tuple_)
        session.end = None if end is None or session.end is None else max(session.end, end)
        if self.closes(tuple_.row):
            session.closed, session.end = True, tuple_.ts
            heappush(self._ends, (tuple_.ts, number))
        session.changed = True
        self._changed.add(number)
        self._since = tuple_.ts if self._since is None else self._since
        return ()

    def _session(self, key: Row, values: Row, ts: int) -> tuple[int, _ChangingSession]:
        """Return the session to which a row belongs, and the number of the session.

        If the group of the row has no open session at this time, a new session begins.
        """
        number = self._latest.get(key, -1)
        session = self._sessions.change(number)
        if session is None or session.closed or (session.end is not None and ts > session.end):
            session, number = _ChangingSession(self.calls.group(values), ts, ts), self._begun
            self._sessions.put(number, session)
            self._latest[key] = number
            heappush(self._ends, (ts, number))
            self._begun += 1
        return number, session

    def advance(self, ts: int) -> Sequence[Timed]:
        """Emit early results, and the results of sessions that ended before `ts`.

        A row at the very end of a session still belongs to the session.
        """
        out: list[Timed] = []
        while True:
            early, end = self._early(), self._end()
            if early is not None and early <= ts and (end is None or early <= end):
                out += [one for number in sorted(self._changed) for one in self._emit(early, number)]
                self._since = None
            elif end is not None and (end < ts or ts == END):
                for number in self._pop_ended(end):
                    out += self._emit(end, number)
                    key = comparable(self._sessions.remove(number).group.values)
                    if self._latest[key] == number:
                        del self._latest[key]
            else:
                return out

    def finish(self) -> Sequence[Timed]:
        return self.advance(END)

    def held_from(self) -> int | None:
        return min((one for one in (self._early(), self._end()) if one is not None), default=None)

    def due(self) -> int | None:
        early, end = self._early(), self._end()
        return min(
            (one for one in (early, None if end is None else end + 1) if one is not None), default=None
        )

    def _early(self) -> int | None:
        """Return the time of the next early emission; None if no session has unemitted changes."""
        every = self.operator.every_us
        return None if self._since is None else (self._since // every + 1) * every

    def _end(self) -> int | None:
        """Return the end of the open session that ends next; None if no session has a known end."""
        while self._ends:
            end, number = self._ends[0]
            session = self._sessions.get(number)
            if session is not None and session.end == end:
                return end
            heappop(self._ends)
            if session is not None and session.end is not None and session.end > end:
                heappush(self._ends, (session.end, number))
        return None

    def _pop_ended(self, end: int) -> list[int]:
        """Remove the sessions that end at `end` from the heap of ends, and return their sorted numbers."""
        found = set()
        while self._end() == end:
            found.add(heappop(self._ends)[1])
        return sorted(found)

    def _emit(self, moment: int, number: int) -> list[Timed]:
        if number not in self._changed:
            return []
        session = self._sessions.change(number)
        assert session is not None, "it is removed after it has ended"
        self._changed.remove(number)
        session.changed = False
        row = self.calls.row(session.group)
        now = None if row is None else (*row, session.start, session.end)
        return [Timed(moment, change) for change in session.group.emit(now)]

    def state(self) -> Any:
        return {"sessions": self._sessions, "begun": self._begun, "since": self._since}

    def restore(self, state: Any) -> None:
        self._begun, self._since = state["begun"], state["since"]
        if "latest" in state:  # the checkpoint is of an early version, which stored a list of sessions
            for number, group, rest in state["sessions"]:
                self._sessions.put(number, self._restored((group, rest)))
        else:
            self._sessions = state["sessions"].opened(_plain, self._restored)
        for number, session in self._sessions.items():
            self._latest[comparable(session.group.values)] = number
            if session.changed:
                self._changed.add(number)
            if session.end is not None:
                self._ends.append((session.end, number))
        heapify(self._ends)

    def _restored(self, plain: Any) -> _ChangingSession:
        group, rest = plain
        return _ChangingSession(self.calls.restored(*group), *rest)


def _plain(session: _ChangingSession) -> Any:
    group = session.group
    rest = (session.start, session.end, session.closed, session.changed)
    return (group.values, group.stored(), group.emitted), rest


def session_changes(operator: SessionChanges, context: StepContext) -> RowStep:
    (schema,) = context.schemas
    group = row_of_items(operator.group_by, schema)
    end_of, closes = session_ends(operator.session, schema)
    calls = GroupCalls(operator.calls, context)
    return row_step(ChangingSessions(operator, group, end_of, closes, calls), context)


def session_ends(
    session: SessionWindow, schema: Schema
) -> tuple[Callable[[Timed], int | None], Callable[[Row], bool]]:
    """Return two functions of a row: the session end that the row causes, and whether it ends its session.

    The session end is None if the session stays open.
    """
    until = row_of_expressions((session.until,), schema) if session.until is not None else None

    def end_of(tuple_: Timed) -> int | None:
        if until is not None:
            (end,) = until(tuple_.row)
            return tuple_.ts if end is None else int(str(end))
        return None if session.gap_us is None else tuple_.ts + session.gap_us

    closes = predicate(session.close, schema) if session.close is not None else lambda _: False
    return end_of, closes
