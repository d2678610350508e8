"""Outer, semi and anti joins of two streams over windows of time, tuple at a time.

A tuple is kept for its own window, with whether it has been matched. When time reaches the end of the window,
nothing that still comes can match it: if nothing has, it comes out then, with NULLs for the other stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slicemill.esl.types.query import JoinKind
from slicemill.esl.types.schema import Schema
from slicemill.operators.join.spec import WindowJoin
from slicemill.operators.row_operator import predicate
from slicemill.rows import Row, Timed
from slicemill.time import END


class _Kept(NamedTuple):
    """A tuple, its number among those of its input, and its end."""

    timed: Timed
    number: int


class OuterJoinByRows:
    """`lengths` are the windows, None where one never ends; `columns` how many columns each input has."""

    waits_for_time = True
    inputs = 2

    def __init__(
        self,
        kind: JoinKind,
        lengths: Sequence[int | None],
        columns: Sequence[int],
        condition: Callable[[Row], bool],
    ) -> None:
        self._kind = kind
        self._lengths = lengths
        self._columns = columns
        self._condition = condition
        self._kept: list[deque[_Kept]] = [deque(), deque()]
        self._matched: list[set[int]] = [set(), set()]
        self._seen = [0, 0]

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        out = list(self.advance(tuple_.ts))
        new = _Kept(tuple_, self._seen[port])
        self._seen[port] += 1
        for old in self._kept[1 - port]:
            left, right = (new, old) if port == 0 else (old, new)
            row = (*left.timed.row, *right.timed.row)
            if self._condition(row):
                again = left.number in self._matched[0]
                self._matched[0].add(left.number)
                self._matched[1].add(right.number)
                if self._kind is not JoinKind.ANTI and not (self._kind is JoinKind.SEMI and again):
                    out.append(Timed(tuple_.ts, row))
        self._kept[port].append(new)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        over: list[tuple[int, int, Row]] = []
        for port, (kept, length) in enumerate(zip(self._kept, self._lengths, strict=True)):
            while kept and length is not None and kept[0].timed.ts + length <= ts:
                timed, number = kept.popleft()
                if port in self._kind.unmatched and number not in self._matched[port]:
                    over.append((timed.ts + length, port, timed.row))
                self._matched[port].discard(number)
        over.sort(key=lambda entry: entry[:2])
        return [Timed(end, self._alone(port, row)) for end, port, row in over]

    def finish(self) -> Sequence[Timed]:
        return self.advance(END)

    def _alone(self, port: int, row: Row) -> Row:
        nothing = (None,) * self._columns[1 - port]
        return (*row, *nothing) if port == 0 else (*nothing, *row)

    def held_from(self) -> int | None:
        """A row without a partner comes out at the end of its window, which is later than all so far."""
        return None

    def due(self) -> int | None:
        ends = [
            one.timed.ts + length
            for port in self._kind.unmatched
            if (length := self._lengths[port]) is not None
            for one in self._kept[port]
            if one.number not in self._matched[port]
        ]
        return min(ends, default=None)

    def state(self) -> Any:
        return self._kept, self._matched, self._seen

    def restore(self, state: Any) -> None:
        self._kept, self._matched, self._seen = (list(part) for part in state)


def outer_join_rows(join: WindowJoin, inputs: Sequence[Schema], output: Schema) -> OuterJoinByRows:
    lengths = [window.extent for window in join.windows]
    columns = [len(schema) for schema in inputs]
    return OuterJoinByRows(join.kind, lengths, columns, predicate(join.condition, output))
