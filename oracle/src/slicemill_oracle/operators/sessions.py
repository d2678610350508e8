"""GROUP BY over session windows: `FROM S [SESSION gap] GROUP BY k`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from slicemill.aggregates.definition import RowCall, align, base_of, comparable, evaluate, normalize_zeros
from slicemill.types import Row, Timed


@dataclass
class _Session:
    key: Row
    start: int
    end: int | None  # None: not ended by time
    closed: bool = False
    rows: list[Row] = field(default_factory=list)


class Sessions:
    """Emits the group's values, the columns of each call, and session bounds.

    The timestamp of a result is the session's end. `end_of` returns the time until which a tuple keeps its
    session open, or None for no limit. `closes` returns True for the last tuple of a session.
    """

    inputs = 1
    waits_for_time = True

    def __init__(
        self,
        calls: Sequence[RowCall],
        group: Callable[[Row], Row],
        end_of: Callable[[Timed], int | None],
        closes: Callable[[Row], bool],
    ) -> None:
        self._definitions = [call.definition for call in calls]
        self._calls = [(base_of(call.definition), call.arguments) for call in calls]
        self._group = group
        self._end_of = end_of
        self._closes = closes
        self._sessions: list[_Session] = []  # in the order of their first tuples

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        out = self._close_before(tuple_.ts)
        key = self._group(tuple_.row)
        same = [s for s in self._sessions if comparable(s.key) == comparable(key) and not s.closed]
        session = same[-1] if same else None
        if session is None or (session.end is not None and tuple_.ts > session.end):
            session = _Session(key, tuple_.ts, tuple_.ts)
            self._sessions.append(session)
        session.rows.append(tuple_.row)
        end = self._end_of(tuple_)
        session.end = None if end is None or session.end is None else max(session.end, end)
        if self._closes(tuple_.row):
            session.closed, session.end = True, tuple_.ts
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._close_before(ts)

    def finish(self) -> Sequence[Timed]:
        return self._close_before(None)

    def held_from(self) -> int | None:
        return min((s.end for s in self._sessions if s.end is not None), default=None)

    def due(self) -> int | None:
        held = self.held_from()
        return None if held is None else held + 1

    def state(self) -> Any:
        return {"sessions": self._sessions}

    def restore(self, state: Any) -> None:
        self._sessions = state["sessions"]

    def _close_before(self, ts: int | None) -> list[Timed]:
        """Emit sessions that ended before `ts`.

        A tuple at the end of a session still belongs to the session.
        """
        over = [s for s in self._sessions if s.end is not None and (ts is None or s.end < ts)]
        if not over:
            return []
        self._sessions = [s for s in self._sessions if s not in over]
        return [row for s in sorted(over, key=lambda s: cast(int, s.end)) for row in self._result(s)]

    def _result(self, session: _Session) -> list[Timed]:
        end = cast(int, session.end)
        returned = [evaluate(base, map(arguments, session.rows)) for base, arguments in self._calls]
        return [
            Timed(end, (*normalize_zeros(session.key), *values, session.start, end))
            for values in align(self._definitions, returned)
        ]
