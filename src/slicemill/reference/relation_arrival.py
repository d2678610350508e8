"""GROUP BY over windows of FROM that move with arrivals: without SLIDE, or by ROWS.

Without SLIDE each tuple gives a row for its own group, over what the windows hold at that moment. With
SLIDE m by ROWS, every m-th tuple gives a row per group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from slicemill.aggregate.definition import RowCall, align, base_of, comparable, evaluate, shown
from slicemill.rows import Row, Timed


class ArrivalAggregate:
    """Output row: the group's values and the columns of each call; with a slide, also the window's bounds.

    `rows` is the length of a ROWS window; else a tuple counts while each of its `members` (places of their
    timestamps in the row, None for the tuple's own) is younger than its window. `where` selects from what the
    window holds.
    """

    inputs = 1
    waits_for_time = False

    def __init__(
        self,
        calls: Sequence[RowCall],
        group: Callable[[Row], Row],
        *,
        rows: int | None = None,
        members: Sequence[tuple[int | None, int]] = (),
        slide: int | None = None,
        where: Callable[[Row], bool] = lambda _: True,
    ) -> None:
        self._definitions = [call.definition for call in calls]
        self._calls = [(base_of(call.definition), call.arguments) for call in calls]
        self._group = group
        self._rows = rows
        self._members = tuple(members)
        self._slide = slide
        self._where = where
        self._content: list[Timed] = []
        self._arrivals = 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._content.append(tuple_)
        self._arrivals += 1
        if self._rows is not None:
            self._content = self._content[-self._rows :]
        else:
            self._content = [stored for stored in self._content if self._is_in(stored, tuple_.ts)]
        if self._slide is not None:
            return self._every_group(tuple_.ts) if self._arrivals % self._slide == 0 else ()
        if not self._where(tuple_.row):
            return ()
        key = shown(self._group(tuple_.row))
        return [Timed(tuple_.ts, (*key, *values)) for values in self._values(key)]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def state(self) -> Any:
        return {"content": self._content, "arrivals": self._arrivals}

    def restore(self, state: Any) -> None:
        self._content, self._arrivals = state["content"], state["arrivals"]

    def _is_in(self, stored: Timed, now: int) -> bool:
        times = (
            (stored.ts if place is None else stored.row[place], length) for place, length in self._members
        )
        return all(now - cast(int, ts) < length for ts, length in times)

    def _values(self, key: Row) -> list[Row]:
        wanted = comparable(key)
        rows = [t.row for t in self._content if self._where(t.row) and self._key(t) == wanted]
        returned = [evaluate(base, map(arguments, rows)) for base, arguments in self._calls]
        return align(self._definitions, returned)

    def _every_group(self, now: int) -> list[Timed]:
        keys = {self._key(t): shown(self._group(t.row)) for t in self._content if self._where(t.row)}
        bounds = (self._content[0].ts, now)
        return [Timed(now, (*key, *values, *bounds)) for key in keys.values() for values in self._values(key)]

    def _key(self, tuple_: Timed) -> Row:
        return comparable(self._group(tuple_.row))
