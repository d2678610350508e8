"""GROUP BY over a stream with a window in FROM (P4, P5).

    FROM S [RANGE w SLIDE s] GROUP BY k

At every multiple e of the slide, the query is evaluated over the window [e - w, e) as a finite table.
Windows are driven by time, not by arrivals: if time passes several ends at once, each window emits its
result.

    tuples   a     b           c
    time  ---0-----1-----2-----3-----4----->      RANGE 2 SLIDE 1
             [a    )                              end 1
             [a     b    )                        end 2
                   [b          )                  end 3
                         [     c     )            end 4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from slicemill.aggregates.definition import RowCall, align, base_of, comparable, evaluate, normalize_zeros
from slicemill.catalog.queries import FrameUnit
from slicemill.errors import SlicemillError
from slicemill.operators.row_step import predicate, row_of_items
from slicemill.operators.window.spec import RelationAggregate
from slicemill.types import Row, Schema, Timed


class SlidingGroups:
    """Emits the group's values, call results, window_start and window_end.

    The timestamp is window_end. Groups with tuples in the window emit rows, in order of first appearance.
    For joined tuples, `members` has the timestamp column and window length of each joined stream. A joined
    tuple counts while all its parts are in their windows. `range_us` is the longest of these windows.
    """

    inputs = 1
    waits_for_time = True

    def __init__(
        self,
        calls: Sequence[RowCall],
        group: Callable[[Row], Row],
        range_us: int,
        slide_us: int,
        members: Sequence[tuple[int, int]] = (),
        grows: bool = False,
    ) -> None:
        if range_us <= 0 or slide_us <= 0:
            raise SlicemillError(f"RANGE {range_us} SLIDE {slide_us}: both must be longer than 0")
        self._definitions = [call.definition for call in calls]
        self._calls = [(base_of(call.definition), call.arguments) for call in calls]
        self._group = group
        self._range_us = range_us
        self._slide_us = slide_us
        self._members = tuple(members)
        self._grows = grows
        self._content: list[Timed] = []
        self._next_end = 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        out = self._close_until(tuple_.ts)
        if not self._content:
            self._next_end = (tuple_.ts // self._slide_us + 1) * self._slide_us
        self._content.append(tuple_)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._close_until(ts)

    def finish(self) -> Sequence[Timed]:
        return self._close_until(None)

    def due(self) -> int | None:
        return self._next_end if self._content else None

    held_from = due

    def state(self) -> Any:
        return {"content": self._content, "next_end": self._next_end}

    def restore(self, state: Any) -> None:
        self._content, self._next_end = state["content"], state["next_end"]

    def _close_until(self, ts: int | None) -> list[Timed]:
        """Evaluate every window that has ended, until no tuple is left."""
        out: list[Timed] = []
        while self._content and (ts is None or self._next_end <= ts):
            out += self._result(self._next_end)
            self._next_end += self._slide_us
            self._content = [tuple_ for tuple_ in self._content if self._is_in(tuple_, self._next_end)]
        return out

    def _is_in(self, tuple_: Timed, end: int) -> bool:
        """Return True if the tuple belongs to the window ending at `end`."""
        if not self._members:
            return tuple_.ts >= self._start(end)
        return all(cast(int, tuple_.row[index]) >= end - length for index, length in self._members)

    def _start(self, end: int) -> int:
        """Return the start of a window.

        Growing windows start at multiples of `range_us`.
        """
        return (end - 1) // self._range_us * self._range_us if self._grows else end - self._range_us

    def _result(self, end: int) -> list[Timed]:
        start = self._start(end)
        groups: dict[Row, tuple[Row, list[Row]]] = {}
        for tuple_ in self._content:
            if tuple_.ts < end and self._is_in(tuple_, end):
                key = self._group(tuple_.row)
                groups.setdefault(comparable(key), (normalize_zeros(key), []))[1].append(tuple_.row)
        return [
            Timed(end, (*key, *values, start, end))
            for key, rows in groups.values()
            for values in align(
                self._definitions, [evaluate(base, map(arguments, rows)) for base, arguments in self._calls]
            )
        ]


class ArrivalGroups:
    """Emits the group's values and call results, with SLIDE also window bounds.

    `rows` is the length of a ROWS window. Otherwise `members` has the timestamp column and window length of
    each joined stream; None stands for the tuple's own timestamp. A tuple counts while all its parts are
    younger than their windows. `where` filters the window.
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
        key = normalize_zeros(self._group(tuple_.row))
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
            (stored.ts if index is None else stored.row[index], length) for index, length in self._members
        )
        return all(now - cast(int, ts) < length for ts, length in times)

    def _values(self, key: Row) -> list[Row]:
        wanted = comparable(key)
        rows = [t.row for t in self._content if self._where(t.row) and self._key(t) == wanted]
        returned = [evaluate(base, map(arguments, rows)) for base, arguments in self._calls]
        return align(self._definitions, returned)

    def _every_group(self, now: int) -> list[Timed]:
        keys = {
            self._key(t): normalize_zeros(self._group(t.row)) for t in self._content if self._where(t.row)
        }
        bounds = (self._content[0].ts, now)
        return [Timed(now, (*key, *values, *bounds)) for key in keys.values() for values in self._values(key)]

    def _key(self, tuple_: Timed) -> Row:
        return comparable(self._group(tuple_.row))


def group_rows(
    aggregate: RelationAggregate, calls: Sequence[RowCall], schema: Schema
) -> SlidingGroups | ArrivalGroups:
    """Return the row operator of an aggregate over windows in FROM."""
    group, first = row_of_items(aggregate.group_by, schema), aggregate.windows[0][1]
    if first.frame is FrameUnit.ROWS:
        where = predicate(aggregate.where, schema)
        return ArrivalGroups(calls, group, rows=first.extent, slide=aggregate.slide, where=where)
    members = [
        (None if column is None else schema.index(column), window.extent)
        for column, window in aggregate.windows
        if window.extent is not None
    ]
    if aggregate.slide is None:
        return ArrivalGroups(calls, group, members=members)
    longest = max(length for _, length in members)
    placed = [(index, length) for index, length in members if index is not None]
    return SlidingGroups(calls, group, longest, aggregate.slide, placed, grows=first.grows)
