"""Join of a stream with the window of another stream (M40, S4).

This is one half of a window join: tuples of the view's stream are stored, but never probe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from slicemill.operators.join.rows import CountWindow, JoinWindow, TimeWindow
from slicemill.types import Row, Timed

# At equal timestamps, the view is read first, so that ages of 0 match.
VIEW, STREAM = 0, 1


class ViewJoin:
    """Emits the tuple's row with each matching row of the view.

    A left join emits a tuple without a match once, with NULLs.
    """

    inputs = 2
    waits_for_time = True

    def __init__(
        self, window: JoinWindow, columns: int, condition: Callable[[Row], bool], left: bool = False
    ) -> None:
        self._window = window
        self._condition = condition
        self._unmatched: list[Row] = [(None,) * columns] if left else []
        self._content: deque[Timed] = deque(maxlen=window.rows if isinstance(window, CountWindow) else None)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        self.advance(tuple_.ts)
        if port == VIEW:
            self._content.append(tuple_)
            return ()
        matches = [stored.row for stored in self._content if self._condition(tuple_.row + stored.row)]
        return [Timed(tuple_.ts, tuple_.row + row) for row in matches or self._unmatched]

    def advance(self, ts: int) -> Sequence[Timed]:
        if isinstance(self._window, TimeWindow):
            while self._content and ts - self._content[0].ts >= self._window.length_us:
                self._content.popleft()
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def state(self) -> Any:
        return self._content

    def restore(self, state: Any) -> None:
        self._content = state
