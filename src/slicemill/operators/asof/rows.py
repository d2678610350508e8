"""ASOF join row by row, for the reference engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from slicemill.esl.types.schema import Schema
from slicemill.operators.asof.spec import AsOfJoin
from slicemill.operators.row_operator import row_of_expressions
from slicemill.rows import Row, Timed


class AsOfByRows:
    """Processes rows of both inputs by (timestamp, input).

    At equal timestamps rows of input 0 precede rows of input 1. If equal timestamps match, a row of input 0
    therefore waits until its timestamp is complete.
    """

    waits_for_time = True
    inputs = 2

    def __init__(self, join: AsOfJoin, keys: Sequence[Callable[[Row], Row]], columns: int) -> None:
        self._join = join
        self._keys = keys
        self._columns = columns
        self._versions: dict[Row, Timed] = {}
        self._waiting: deque[Timed] = deque()

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        out = list(self.advance(tuple_.ts))
        if port == 1:
            self._versions[self._keys[1](tuple_.row)] = tuple_
        elif self._join.strict:
            out += self._met(tuple_)
        else:
            self._waiting.append(tuple_)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._released(ts)

    def finish(self) -> Sequence[Timed]:
        return self._released(None)

    def held_from(self) -> int | None:
        return self._waiting[0].ts if self._waiting else None

    def due(self) -> int | None:
        return self._waiting[0].ts + 1 if self._waiting else None

    def _released(self, ts: int | None) -> list[Timed]:
        out: list[Timed] = []
        while self._waiting and (ts is None or self._waiting[0].ts < ts):
            out += self._met(self._waiting.popleft())
        return out

    def _met(self, tuple_: Timed) -> list[Timed]:
        key = self._keys[0](tuple_.row)
        found = None if None in key else self._versions.get(key)
        window = self._join.window_us
        if found is not None and window is not None and tuple_.ts - found.ts >= window:
            found = None
        if found is None:
            nothing = (None,) * self._columns
            return [Timed(tuple_.ts, (*tuple_.row, *nothing))] if self._join.left else []
        return [Timed(tuple_.ts, (*tuple_.row, *found.row))]


def as_of_rows(join: AsOfJoin, inputs: Sequence[Schema]) -> AsOfByRows:
    keys = [row_of_expressions(own, schema) for own, schema in zip(join.keys, inputs, strict=True)]
    return AsOfByRows(join, keys, len(inputs[1]))
