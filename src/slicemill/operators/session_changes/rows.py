"""Sessions with early emissions, row by row; state is the open sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slicemill.aggregate.definition import RowAggregate, align, comparable, shown
from slicemill.esl.types.query import SessionWindow
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.group_changes.rows import NOTHING, ChangingGroup, Retractable, retractable, told
from slicemill.operators.row_operator import predicate, row_of_expressions, row_of_items
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.session_changes.spec import SessionChanges
from slicemill.rows import Row, Timed
from slicemill.time import END


@dataclass(slots=True)
class _ChangingSession:
    """Session of a group, from `start` to `end`.

    The end moves as rows arrive; None if it is not known.
    """

    group: ChangingGroup
    start: int
    end: int | None
    closed: bool = False
    changed: bool = True


@dataclass(slots=True)
class ChangingSessions:
    """Row operator of sessions with early emissions.

    `group` and `closes` are functions of a row; `end_of` returns when a row lets its session end.
    """

    operator: SessionChanges
    group: Callable[[Row], Row]
    end_of: Callable[[Timed], int | None]
    closes: Callable[[Row], bool]
    calls: Sequence[tuple[RowAggregate, Callable[[], Retractable], Callable[[Row], Row]]]
    inputs: int = 1
    waits_for_time: bool = True
    # Sessions by number; the number of each group's last session; and the time of the first unemitted change.
    _sessions: dict[int, _ChangingSession] = field(default_factory=dict)
    _latest: dict[Row, int] = field(default_factory=dict)
    _begun: int = 0
    _since: int | None = None

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        values = self.group(tuple_.row)
        session = self._session(comparable(values), values, tuple_.ts)
        for kept, (_, _, arguments) in zip(session.group.calls, self.calls, strict=True):
            kept.add(arguments(tuple_.row))
        end = self.end_of(tuple_)
        session.end = None if end is None or session.end is None else max(session.end, end)
        if self.closes(tuple_.row):
            session.closed, session.end = True, tuple_.ts
        session.changed = True
        self._since = tuple_.ts if self._since is None else self._since
        return ()

    def _session(self, key: Row, values: Row, ts: int) -> _ChangingSession:
        """Return the open session of a row's group, or a new one."""
        session = self._sessions.get(self._latest.get(key, -1))
        if session is None or session.closed or (session.end is not None and ts > session.end):
            group = ChangingGroup(shown(values), [make() for _, make, _ in self.calls])
            session = _ChangingSession(group, ts, ts)
            self._latest[key], self._sessions[self._begun] = self._begun, session
            self._begun += 1
        return session

    def advance(self, ts: int) -> Sequence[Timed]:
        """Emit early results and ended sessions up to a time.

        A row at the very end of a session still belongs to the session.
        """
        out: list[Timed] = []
        while True:
            early, end = self._early(), self._end()
            if early is not None and early <= ts and (end is None or early <= end):
                out += [one for number in self._sessions for one in self._told(early, number)]
                self._since = None
            elif end is not None and (end < ts or ts == END):
                for number in [n for n, session in self._sessions.items() if session.end == end]:
                    out += self._told(end, number)
                    del self._sessions[number]
                self._latest = {key: n for key, n in self._latest.items() if n in self._sessions}
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
        """Return the time of the next early emission."""
        every = self.operator.every_us
        return None if self._since is None else (self._since // every + 1) * every

    def _end(self) -> int | None:
        """Return the end of the next session."""
        return min((s.end for s in self._sessions.values() if s.end is not None), default=None)

    def _told(self, moment: int, number: int) -> list[Timed]:
        session = self._sessions[number]
        if not session.changed:
            return []
        session.changed = False
        group = session.group
        given = [[] if value is NOTHING else [value] for value in (kept.value() for kept in group.calls)]
        rows = align([definition for definition, _, _ in self.calls], given)
        now = (*group.values, *rows[0], session.start, session.end) if rows else None
        before, group.told = group.told, now
        return [Timed(moment, row) for row in told(before, now)]

    def state(self) -> Any:
        sessions = [
            (
                number,
                (one.group.values, [kept.state() for kept in one.group.calls], one.group.told),
                (one.start, one.end, one.closed, one.changed),
            )
            for number, one in self._sessions.items()
        ]
        latest = list(self._latest.items())
        return {"sessions": sessions, "latest": latest, "begun": self._begun, "since": self._since}

    def restore(self, state: Any) -> None:
        self._latest, self._begun, self._since = dict(state["latest"]), state["begun"], state["since"]
        for number, (values, calls, last), rest in state["sessions"]:
            group = ChangingGroup(values, [make() for _, make, _ in self.calls], 0, last)
            for kept, each in zip(group.calls, calls, strict=True):
                kept.restore(each)
            self._sessions[number] = _ChangingSession(group, *rest)


def session_changes(operator: SessionChanges, context: StepContext) -> RowStep:
    (schema,) = context.schemas
    calls = []
    for call in operator.calls:
        definition = context.definition(call)
        arguments = row_of_expressions(call.arguments, schema)
        calls.append((definition, retractable(call, definition), arguments))
    group = row_of_items(operator.group_by, schema)
    end_of, closes = session_ends(operator.session, schema)
    return row_step(ChangingSessions(operator, group, end_of, closes, calls), context)


def session_ends(
    session: SessionWindow, schema: Schema
) -> tuple[Callable[[Timed], int | None], Callable[[Row], bool]]:
    """Return functions for a row's session end, and for closing rows.

    The end is None if the session stays open.
    """
    until = row_of_expressions((session.until,), schema) if session.until is not None else None

    def end_of(tuple_: Timed) -> int | None:
        if until is not None:
            (end,) = until(tuple_.row)
            return tuple_.ts if end is None else int(str(end))
        return None if session.gap_us is None else tuple_.ts + session.gap_us

    closes = predicate(session.close, schema) if session.close is not None else lambda _: False
    return end_of, closes
