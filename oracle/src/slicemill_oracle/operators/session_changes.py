"""Session windows with early results, recomputed from all tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slicemill.aggregates.definition import RowCall, align, base_of, comparable, evaluate, normalize_zeros
from slicemill.operators.changelog.spec import SessionChanges
from slicemill.time import END
from slicemill.types import Row, Timed
from slicemill_oracle.operators.changes import difference


@dataclass
class _SessionRows:
    key: Row
    number: int  # number within its group
    start: int
    end: int | None
    closed: bool = False
    rows: list[Row] = field(default_factory=list)


class SessionChangesOperator:
    inputs = 1
    waits_for_time = True

    def __init__(
        self,
        operator: SessionChanges,
        calls: Sequence[RowCall],
        group: Callable[[Row], Row],
        end_of: Callable[[Timed], int | None],
        closes: Callable[[Row], bool],
    ) -> None:
        self._every, self._calls, self._group = operator.every_us, calls, group
        self._end_of, self._closes = end_of, closes
        self._tuples: list[Timed] = []
        self._since: int | None = None
        self._told: dict[tuple[Row, int], Row] = {}
        self._over: set[tuple[Row, int]] = set()

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._tuples.append(tuple_)
        self._since = tuple_.ts if self._since is None else self._since
        return ()

    def advance(self, ts: int) -> Sequence[Timed]:
        told: list[Timed] = []
        while True:
            open_ = [s for s in self._sessions() if (s.key, s.number) not in self._over]
            ends = [s.end for s in open_ if s.end is not None]
            end, early = min(ends, default=None), self._early()
            if early is not None and early <= ts and (end is None or early <= end):
                told += [change for session in open_ for change in self._changes(early, session)]
                self._since = None
            elif end is not None and (end < ts or ts == END):
                over = [session for session in open_ if session.end == end]
                told += [change for session in over for change in self._changes(end, session)]
                self._over |= {(session.key, session.number) for session in over}
            else:
                return told

    def finish(self) -> Sequence[Timed]:
        return self.advance(END)

    def held_from(self) -> int | None:
        ends = [s.end for s in self._sessions() if s.end is not None and (s.key, s.number) not in self._over]
        early = self._early()
        return min(ends if early is None else [*ends, early], default=None)

    def due(self) -> int | None:
        held = self.held_from()
        return None if held is None else held + 1

    def _early(self) -> int | None:
        return None if self._since is None else (self._since // self._every + 1) * self._every

    def _sessions(self) -> list[_SessionRows]:
        found: list[_SessionRows] = []
        for one in self._tuples:
            key = comparable(self._group(one.row))
            same = [session for session in found if session.key == key]
            session = same[-1] if same and not same[-1].closed else None
            if session is None or (session.end is not None and one.ts > session.end):
                session = _SessionRows(key, len(same), one.ts, one.ts)
                found.append(session)
            session.rows.append(one.row)
            end = self._end_of(one)
            session.end = None if end is None or session.end is None else max(session.end, end)
            if self._closes(one.row):
                session.closed, session.end = True, one.ts
        return found

    def _changes(self, moment: int, session: _SessionRows) -> list[Timed]:
        returned = [
            evaluate(base_of(call.definition), map(call.arguments, session.rows)) for call in self._calls
        ]
        values = align([call.definition for call in self._calls], returned)
        bounds = (session.start, session.end)
        now = normalize_zeros(self._group(session.rows[0])) + values[0] + bounds if values else None
        name = session.key, session.number
        before = self._told.pop(name, None)
        if now is not None:
            self._told[name] = now
        return [Timed(moment, row) for row in difference(before, now)]
