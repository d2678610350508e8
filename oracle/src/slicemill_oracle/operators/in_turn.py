"""Deterministic order of tuples from several inputs."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.operators.row_step import DelayedOutput, RowOperator
from slicemill.time import END
from slicemill.types import Timed


class InputOrderOperator:
    """Orders tuples of equal time by input, then by arrival.

    Tuples are held until the watermark has passed their time, because the registers admit a tuple before all
    tuples of its time have arrived (M21).
    """

    waits_for_time = True

    def __init__(self, operator: RowOperator) -> None:
        self.inputs = operator.inputs
        self._operator = operator
        self._waiting: list[tuple[int, Timed]] = []

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        self._waiting.append((port, tuple_))
        return ()

    def advance(self, ts: int) -> Sequence[Timed]:
        return [*self._taken(ts), *self._operator.advance(ts)]

    def finish(self) -> Sequence[Timed]:
        return [*self._taken(END), *self._operator.finish()]

    def held_from(self) -> int | None:
        held = self._operator.held_from() if isinstance(self._operator, DelayedOutput) else None
        return min((one for one in (self._first(), held) if one is not None), default=None)

    def due(self) -> int | None:
        first = self._first()
        held = self._operator.due() if isinstance(self._operator, DelayedOutput) else None
        return min(
            (one for one in (None if first is None else first + 1, held) if one is not None), default=None
        )

    def _first(self) -> int | None:
        return min((tuple_.ts for _, tuple_ in self._waiting), default=None)

    def _taken(self, ts: int) -> list[Timed]:
        ready = [one for one in self._waiting if one[1].ts < ts]
        self._waiting = self._waiting[len(ready) :]
        told: list[Timed] = []
        for port, tuple_ in sorted(ready, key=lambda one: (one[1].ts, one[0])):
            told += [*self._operator.advance(tuple_.ts), *self._operator.process(port, tuple_)]
        return told
