"""Reference implementation of the window join, which processes its input row by row (M14, S1-S3).

A new row t matches a stored row u of another input if u is in the window of its input. For a window of length
W this means 0 <= t.ts - u.ts < W. The result has the timestamp of t, the latest of its rows.

Rows are processed in order of (timestamp, input, arrival), and rows of equal timestamps match. In a self-join
one stream feeds two ports. Each row matches itself once, because the row is stored at port 0 before it is
processed at port 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, NamedTuple

from slicemill.catalog.queries import FrameUnit, JoinKind, Window
from slicemill.errors import SlicemillError
from slicemill.operators.join.spec import WindowJoin
from slicemill.operators.row_step import RowStep, predicate, row_step
from slicemill.operators.step import StepContext
from slicemill.time import BEGINNING, END
from slicemill.types import Row, Schema, Timed


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Window of the rows younger than `length_us`."""

    length_us: int


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Window of the last `rows` rows of the input, by arrival."""

    rows: int


@dataclass(frozen=True, slots=True)
class UnboundedJoinWindow:
    """Window of all rows so far."""


JoinWindow = TimeWindow | CountWindow | UnboundedJoinWindow
# function that returns when a row expires by its expiry column, or None if the row never matches
RowLife = Callable[[Row], int | None]


def _expire(stored: deque[Timed], window: JoinWindow, now: int) -> None:
    """Evict the stored rows that have left their time window, because no later row can match them.

    Rows of a count window are in a queue of limited length, which evicts rows on arrival.
    """
    if isinstance(window, TimeWindow):
        while stored and now - stored[0].ts >= window.length_us:
            stored.popleft()


class JoinByRows:
    """Inner join of two or more inputs, computed row by row.

    A result has the columns of all inputs, in FROM order. Results of one new row are ordered by their stored
    rows, oldest first. The row of the first input varies slowest. With `member_times`, the timestamps of the
    joined rows are appended (S1), so that an aggregate knows when a result leaves the windows.
    """

    waits_for_time = True

    def __init__(
        self,
        windows: Sequence[JoinWindow],
        condition: Callable[[Row], bool],
        member_times: bool = False,
        lives: Sequence[RowLife | None] = (),
    ) -> None:
        if len(windows) < 2:
            raise SlicemillError(f"a join needs two or more inputs, this one has {len(windows)}")
        self._windows = tuple(windows)
        self._condition = condition
        self._member_times = member_times
        self._lives = lives or [None for _ in windows]
        self._stored: list[deque[Timed]] = [
            deque(maxlen=window.rows if isinstance(window, CountWindow) else None) for window in windows
        ]

    @property
    def inputs(self) -> int:
        return len(self._windows)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        self.advance(tuple_.ts)
        partners = [(tuple_,) if i == port else stored for i, stored in enumerate(self._stored)]
        out: list[Timed] = []
        for combination in product(*partners):
            row: Row = tuple(chain.from_iterable(part.row for part in combination))
            if self._member_times:
                row += tuple(part.ts for part in combination)
            if self._all_live(combination) and self._condition(row):
                out.append(Timed(tuple_.ts, row))
        self._stored[port].append(tuple_)
        return out

    def _all_live(self, combination: Sequence[Timed]) -> bool:
        """Return True if no row of a joined result had expired when the other rows arrived."""
        for index, life in enumerate(self._lives):
            if life is not None:
                end = life(combination[index].row)
                others = (part.ts for other, part in enumerate(combination) if other != index)
                if end is None or any(ts >= end for ts in others):
                    return False
        return True

    def advance(self, ts: int) -> Sequence[Timed]:
        for stored, window in zip(self._stored, self._windows, strict=True):
            _expire(stored, window, ts)
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def state(self) -> Any:
        return self._stored

    def restore(self, state: Any) -> None:
        self._stored = state


class _StoredRow(NamedTuple):
    """Stored row with its row number, the time at which it expires by a column, and its eviction time."""

    timed: Timed
    number: int
    life: int
    end: int


class OuterJoinByRows:
    """Outer, semi and anti joins of two streams over time windows, computed row by row.

    A row is stored until the end of its own window, when no later row can match it. If the row is still
    unmatched, it is emitted with NULLs for the other stream. `lengths` are the windows, None if unbounded.
    `columns` are the column counts of the inputs. `lives` return when rows expire. A row that has already
    expired on arrival is emitted one microsecond later. With `member_times`, both timestamps are appended,
    NULL for a missing row.
    """

    waits_for_time = True
    inputs = 2

    def __init__(
        self,
        kind: JoinKind,
        lengths: Sequence[int | None],
        columns: Sequence[int],
        condition: Callable[[Row], bool],
        lives: Sequence[RowLife | None] = (None, None),
        member_times: bool = False,
    ) -> None:
        self._kind = kind
        self._member_times = member_times
        self._lives = lives
        self._lengths = lengths
        self._columns = columns
        self._condition = condition
        self._kept: list[list[_StoredRow]] = [[], []]
        self._matched: list[set[int]] = [set(), set()]
        self._seen = [0, 0]

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        out = list(self.advance(tuple_.ts))
        new = self._keep(port, tuple_)
        for old in self._kept[1 - port]:
            left, right = (new, old) if port == 0 else (old, new)
            row = (*left.timed.row, *right.timed.row)
            if self._member_times:
                row = (*row, left.timed.ts, right.timed.ts)
            met = left.timed.ts < right.life and right.timed.ts < left.life
            if met and self._condition(row):
                again = left.number in self._matched[0]
                self._matched[0].add(left.number)
                self._matched[1].add(right.number)
                if self._kind is not JoinKind.ANTI and not (self._kind is JoinKind.SEMI and again):
                    out.append(Timed(tuple_.ts, row))
        self._kept[port].append(new)
        return out

    def _keep(self, port: int, tuple_: Timed) -> _StoredRow:
        life, length = self._lives[port], self._lengths[port]
        expires = END if life is None else life(tuple_.row)
        expires = BEGINNING if expires is None else expires
        end = expires if length is None else min(expires, tuple_.ts + length)
        self._seen[port] += 1
        return _StoredRow(tuple_, self._seen[port] - 1, expires, max(end, tuple_.ts + 1))

    def advance(self, ts: int) -> Sequence[Timed]:
        over: list[tuple[int, int, Row]] = []
        for port, kept in enumerate(self._kept):
            for one in (one for one in kept if one.end <= ts):
                if port in self._kind.outer_inputs and one.number not in self._matched[port]:
                    over.append((one.end, port, self._alone(port, one.timed)))
                self._matched[port].discard(one.number)
            self._kept[port] = [one for one in kept if one.end > ts]
        over.sort(key=lambda entry: entry[:2])
        return [Timed(end, row) for end, _, row in over]

    def finish(self) -> Sequence[Timed]:
        return self.advance(END)

    def _alone(self, port: int, timed: Timed) -> Row:
        nothing: Row = (None,) * self._columns[1 - port]
        row = (*timed.row, *nothing) if port == 0 else (*nothing, *timed.row)
        times = (timed.ts, None) if port == 0 else (None, timed.ts)
        return (*row, *times) if self._member_times else row

    def held_from(self) -> int | None:
        """Return None, because no result has to be held back for unmatched rows.

        An unmatched row is emitted later than all results so far.
        """
        return None

    def due(self) -> int | None:
        ends = [
            one.end
            for port in self._kind.outer_inputs
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
    lives = [_life(window, schema) for window, schema in zip(join.windows, inputs, strict=True)]
    condition = predicate(join.condition, output)
    return OuterJoinByRows(join.kind, lengths, columns, condition, lives, join.member_times)


def join_window(window: Window) -> JoinWindow:
    if window.extent is None:
        return UnboundedJoinWindow()
    return CountWindow(window.extent) if window.frame is FrameUnit.ROWS else TimeWindow(window.extent)


def join_rows(join: WindowJoin, inputs: Sequence[Schema], output: Schema) -> JoinByRows:
    windows = [join_window(window) for window in join.windows]
    lives = [_life(window, schema) for window, schema in zip(join.windows, inputs, strict=True)]
    return JoinByRows(windows, predicate(join.condition, output), join.member_times, lives)


def _life(window: Window, schema: Schema) -> RowLife | None:
    expires = window.expires
    if expires is None:
        return None
    index = schema.names.index(expires.column)

    def end(row: Row) -> int | None:
        at = row[index]
        assert at is None or isinstance(at, int), "timestamps are microseconds"
        return None if at is None else at + expires.after_us

    return end


def join_by_rows(join: WindowJoin, context: StepContext) -> RowStep:
    """Return the execution step of a join that is computed row by row.

    The engine uses this step for joins of three or more streams over windows that count rows.
    """
    if join.kind is not JoinKind.INNER:
        return row_step(outer_join_rows(join, context.schemas, context.node.schema), context)
    return row_step(join_rows(join, context.schemas, context.node.schema), context)
