"""Join over punctuation windows that stores every tuple with its window's number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slicemill.aggregates.definition import comparable
from slicemill.catalog.queries import JoinKind
from slicemill.operators.specs import PunctuatedJoin
from slicemill.time import END
from slicemill.types import Row, Timed


@dataclass
class _Tuple:
    port: int
    timed: Timed
    window: tuple[Row, int]  # a key, and the number of its windows closed before
    matched: bool = False
    gone: bool = False


class PunctuatedJoinOperator:
    inputs = 2
    waits_for_time = True

    def __init__(
        self,
        join: PunctuatedJoin,
        keys: Sequence[Callable[[Row], Row]],
        closes: Sequence[Callable[[Row], bool]],
        matches: Callable[[Row], bool],
        widths: tuple[int, int],
    ) -> None:
        self._join, self._keys, self._closes = join, keys, closes
        self._matches, self._widths = matches, widths
        self._tuples: list[_Tuple] = []
        self._closed: list[Row] = []  # the keys of closed windows

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        told = list(self.advance(tuple_.ts))
        key = comparable(self._keys[port](tuple_.row))
        new = _Tuple(port, tuple_, (key, self._closed.count(key)))
        for old in self._tuples:
            if old.port == port or old.window != new.window or old.gone:
                continue
            left, right = (new, old) if port == 0 else (old, new)
            if self._matches(row := (*left.timed.row, *right.timed.row)):
                again, left.matched, right.matched = left.matched, True, True
                if self._join.kind is JoinKind.SEMI and again:
                    continue
                told += [Timed(tuple_.ts, row)] if self._join.kind is not JoinKind.ANTI else []
        self._tuples.append(new)
        if self._closes[port](tuple_.row):
            self._closed.append(key)
            told += [
                self._alone(one, tuple_.ts)
                for side in self._join.kind.outer_inputs
                for one in self._tuples
                if one.port == side and one.window == new.window and not one.matched and not one.gone
            ]
        return told

    def advance(self, ts: int) -> Sequence[Timed]:
        told: list[tuple[int, int, Timed]] = []
        for one in self._tuples:
            length = self._join.lengths[one.port]
            if one.gone or length is None or one.timed.ts + length > ts:
                continue
            one.gone = True
            key, number = one.window
            is_open = self._closed.count(key) == number
            if is_open and one.port in self._join.kind.outer_inputs and not one.matched:
                end = one.timed.ts + length
                told.append((end, one.port, self._alone(one, end)))
        return [timed for _, _, timed in sorted(told, key=lambda entry: entry[:2])]

    def finish(self) -> Sequence[Timed]:
        return self.advance(END)

    def _alone(self, one: _Tuple, ts: int) -> Timed:
        nothing = (None,) * self._widths[1 - one.port]
        row = one.timed.row
        return Timed(ts, (*row, *nothing) if one.port == 0 else (*nothing, *row))
