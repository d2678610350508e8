"""Lateral join with a table function (M40)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slicemill.types import Row, Timed


class TableCallOperator:
    """Emits the tuple's row, followed by each row of `rows_for`."""

    inputs = 1
    waits_for_time = False

    def __init__(self, rows_for: Callable[[Row], Sequence[Row]]) -> None:
        self._rows_for = rows_for

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        return [Timed(tuple_.ts, tuple_.row + row) for row in self._rows_for(tuple_.row)]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()
