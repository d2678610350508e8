"""Punctuation-window join, processed row by row.

A row that satisfies a condition (punctuation) closes the window of its key. The state has the rows of open
windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from slicemill.aggregates.definition import comparable
from slicemill.catalog.queries import JoinKind
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.operators.row_step import RowStep, predicate, row_of_expressions, row_step
from slicemill.operators.specs import PunctuatedJoin
from slicemill.operators.step import StepContext
from slicemill.time import END
from slicemill.types import Row, Schema, Timed


@dataclass(slots=True)
class _WindowRow:
    """Row of an open window, with a flag that is set when the row has a match."""

    timed: Timed
    matched: bool = False


# Rows of one window, as a dict for each input. It maps arrival numbers to rows, in arrival order.
_Window: TypeAlias = tuple[dict[int, _WindowRow], dict[int, _WindowRow]]


@dataclass(slots=True)
class PunctuatedRows:
    """Punctuation-window join, which processes rows one by one.

    `keys` and `closes` are functions of an input's row, and `matches` is a function of a joined row. `widths`
    are the column counts of the inputs.
    """

    operator: PunctuatedJoin
    keys: Sequence[Callable[[Row], Row]]
    closes: Sequence[Callable[[Row], bool]]
    matches: Callable[[Row], bool]
    widths: tuple[int, int]
    inputs: int = 2
    waits_for_time: bool = True
    _windows: ObjectsByKey[Row, _Window] = field(default_factory=lambda: ObjectsByKey(_plain, _made))
    # (time, key, arrival number) of each stored row, for inputs whose rows have a maximum age.
    _ages: tuple[deque[tuple[int, Row, int]], ...] = field(default_factory=lambda: (deque(), deque()))
    _arrived: int = 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        out = list(self.advance(tuple_.ts))
        key = comparable(self.keys[port](tuple_.row))
        window = self._windows.change(key)
        if window is None:
            window = ({}, {})
            self._windows.put(key, window)
        new = _WindowRow(tuple_)
        for old in window[1 - port].values():
            left, right = (new, old) if port == 0 else (old, new)
            row = (*left.timed.row, *right.timed.row)
            if self.matches(row):
                again, left.matched, right.matched = left.matched, True, True
                if self.operator.kind is not JoinKind.ANTI and not (
                    self.operator.kind is JoinKind.SEMI and again
                ):
                    out.append(Timed(tuple_.ts, row))
        self._arrived += 1
        window[port][self._arrived] = new
        if self.operator.lengths[port] is not None:
            self._ages[port].append((tuple_.ts, key, self._arrived))
        if self.closes[port](tuple_.row):
            self._windows.remove(key)
            out += self._unmatched(window, tuple_.ts)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        expired: list[tuple[int, int, Row]] = []
        for port, (ages, length) in enumerate(zip(self._ages, self.operator.lengths, strict=True)):
            while ages and length is not None and ages[0][0] + length <= ts:
                since, key, number = ages.popleft()
                member = self._expire(port, key, number)
                if member is not None and port in self.operator.kind.outer_inputs and not member.matched:
                    expired.append((since + length, port, member.timed.row))
        expired.sort(key=lambda entry: entry[:2])
        return [Timed(end, self._alone(port, row)) for end, port, row in expired]

    def finish(self) -> Sequence[Timed]:
        return self.advance(END)

    def held_from(self) -> int | None:
        """Return None: no output is held back, because unmatched rows are later than all results so far."""
        return None

    def due(self) -> int | None:
        return min(
            (
                ages[0][0] + length
                for ages, length in zip(self._ages, self.operator.lengths, strict=True)
                if ages and length is not None and self.operator.kind.outer_inputs
            ),
            default=None,
        )

    def _expire(self, port: int, key: Row, number: int) -> _WindowRow | None:
        """Delete a row that has reached its maximum age, and return it.

        Return None if the window of the row is already closed.
        """
        window = self._windows.change(key)
        member = None if window is None else window[port].pop(number, None)
        if window is not None and not any(window):
            self._windows.remove(key)
        return member

    def _unmatched(self, window: _Window, ts: int) -> Iterator[Timed]:
        for port in self.operator.kind.outer_inputs:
            for member in window[port].values():
                if not member.matched:
                    yield Timed(ts, self._alone(port, member.timed.row))

    def _alone(self, port: int, row: Row) -> Row:
        nothing = (None,) * self.widths[1 - port]
        return (*row, *nothing) if port == 0 else (*nothing, *row)

    def state(self) -> Any:
        return {"by_key": self._windows, "arrived": self._arrived}

    def restore(self, state: Any) -> None:
        self._arrived = state["arrived"]
        if "by_key" in state:
            self._windows = state["by_key"].opened(_plain, _made)
        else:  # the checkpoint is of an early version, which stored all windows in one list
            for key, sides in state["windows"]:
                self._windows.put(key, _made(sides))
        for port, length in enumerate(self.operator.lengths):
            if length is not None:
                rows = [
                    (number, one.timed.ts, key)
                    for key, window in self._windows.items()
                    for number, one in window[port].items()
                ]
                self._ages[port].extend(
                    (ts, key, number) for number, ts, key in sorted(rows, key=itemgetter(0))
                )


def _plain(window: _Window) -> Any:
    return [[(number, one.timed, one.matched) for number, one in side.items()] for side in window]


def _made(plain: Any) -> _Window:
    left, right = ({number: _WindowRow(timed, matched) for number, timed, matched in side} for side in plain)
    return left, right


def punctuated_join(operator: PunctuatedJoin, context: StepContext) -> RowStep:
    schemas: Sequence[Schema] = context.schemas
    keys = [row_of_expressions(exprs, schema) for exprs, schema in zip(operator.keys, schemas, strict=True)]
    left, right = (len(schema) for schema in schemas)
    matches = predicate(operator.condition, context.node.schema)
    return row_step(
        PunctuatedRows(operator, keys, closings(operator, schemas), matches, (left, right)), context
    )


def closings(operator: PunctuatedJoin, schemas: Sequence[Schema]) -> list[Callable[[Row], bool]]:
    """Return for each input a predicate that is true for rows which close the window of their key."""
    return [
        (lambda _: False) if close is None else predicate(close, schema)
        for close, schema in zip(operator.closes, schemas, strict=True)
    ]
