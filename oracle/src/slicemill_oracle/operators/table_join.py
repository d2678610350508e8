"""Join of a stream with a table's current rows (M40)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slicemill.types import Row, Timed


class TableJoin:
    """Emits the tuple's row with each matching row of the table.

    A left join emits a tuple without a match once, with `columns` NULLs.
    """

    inputs = 1
    waits_for_time = False

    def __init__(
        self,
        rows: Callable[[], Sequence[Row]],
        columns: int,
        condition: Callable[[Row], bool],
        left: bool = False,
    ) -> None:
        self._rows = rows
        self._condition = condition
        self._unmatched = [(None,) * columns] if left else []

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        matches = [row for row in self._rows() if self._condition(tuple_.row + row)]
        return [Timed(tuple_.ts, tuple_.row + row) for row in matches or self._unmatched]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()
