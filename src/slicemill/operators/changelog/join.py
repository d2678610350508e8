"""Join of changelogs, processed row by row.

The rows of both inputs are stored by join key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from slicemill.aggregates.definition import comparable
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.operators.changelog.retraction import IncomingChanges, changes_between
from slicemill.operators.changelog.spec import JoinChanges
from slicemill.operators.row_step import RowStep, predicate, row_of_expressions, row_step
from slicemill.operators.step import StepContext
from slicemill.types import Row, Schema, Timed

# Stored rows by arrival number. The new row of an update has the arrival number of the old row.
Rows: TypeAlias = dict[int, Row]
# Result rows by the arrival numbers of their two input rows. Number 0 stands for a missing input row.
Results: TypeAlias = dict[tuple[int, int], Row]


@dataclass(slots=True)
class JoinChangesByRows:
    """Join of two changelogs, which processes rows one by one.

    `keys` has for each input the function that returns the join key of an arriving row. `matches` returns
    True if a joined row satisfies the join condition. `widths` are the numbers of columns of the inputs.
    """

    operator: JoinChanges
    keys: Sequence[Callable[[Row], Row]]
    matches: Callable[[Row], bool]
    widths: tuple[int, int]
    inputs: int = 2
    waits_for_time: bool = True
    # Stored rows by join key. Each key has one dict of rows for each input.
    _sides: ObjectsByKey[Row, Rows] = field(default_factory=lambda: ObjectsByKey(_same, _same))
    _incoming: tuple[IncomingChanges, ...] = field(init=False)
    _arrived: int = 0

    def __post_init__(self) -> None:
        self._incoming = tuple(map(IncomingChanges, self.operator.retracts))

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        change = self._incoming[port].read(tuple_.row)
        if change is None:
            return ()
        retracted, inserted = change
        before: Results = {}
        now: Results = {}
        number = None
        if retracted is not None:
            number = self._remove(port, retracted, before, now)
        if inserted is not None:
            if number is None:
                self._arrived += 1
                number = self._arrived
            self._insert(port, inserted, number, before, now)
        changes = changes_between(dict(sorted(before.items())), dict(sorted(now.items())))
        return [Timed(tuple_.ts, row) for row in changes]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def _remove(self, port: int, row: Row, before: Results, now: Results) -> int:
        key = comparable(self.keys[port](row))
        own, stored = self._own(port, row), self._sides.change(key, port)
        assert stored is not None, "a retracted row was inserted before"
        wanted = comparable(own)
        # If several stored rows are equal to the retracted row, delete the row that arrived first.
        number = min(number for number, other in stored.items() if comparable(other) == wanted)
        del stored[number]
        if not stored:
            self._sides.remove(key, port)
        partners = list(self._partners(port, key, own))
        for other, row_there in partners:
            before[_pair(port, number, other)] = self._joined(port, own, row_there)
            if self._emits_unmatched(1 - port) and not any(self._partners(1 - port, key, row_there)):
                now[_pair(port, 0, other)] = self._joined(port, None, row_there)
        if not partners and self._emits_unmatched(port):
            before[_pair(port, number, 0)] = self._joined(port, own, None)
        return number

    def _insert(self, port: int, row: Row, number: int, before: Results, now: Results) -> None:
        key, own = comparable(self.keys[port](row)), self._own(port, row)
        partners = list(self._partners(port, key, own))
        for other, row_there in partners:
            if self._emits_unmatched(1 - port) and not any(self._partners(1 - port, key, row_there)):
                alone = _pair(port, 0, other)
                if now.pop(alone, None) is None:
                    before[alone] = self._joined(port, None, row_there)
            now[_pair(port, number, other)] = self._joined(port, own, row_there)
        if not partners and self._emits_unmatched(port):
            now[_pair(port, number, 0)] = self._joined(port, own, None)
        stored = self._sides.change(key, port)
        if stored is None:
            self._sides.put(key, {number: own}, port)
        else:
            stored[number] = own

    def _partners(self, port: int, key: Row, own: Row) -> Iterator[tuple[int, Row]]:
        """Yield the stored rows of the other input that match a row, with their arrival numbers."""
        for number, other in (self._sides.get(key, 1 - port) or {}).items():
            if self.matches(self._joined(port, own, other)):
                yield number, other

    def _emits_unmatched(self, port: int) -> bool:
        """Return True if rows of input `port` are emitted even if they have no match."""
        return port in self.operator.kind.outer_inputs

    def _own(self, port: int, row: Row) -> Row:
        return row[1:] if self.operator.retracts[port] else row

    def _joined(self, port: int, own: Row | None, other: Row | None) -> Row:
        own = (None,) * self.widths[port] if own is None else own
        other = (None,) * self.widths[1 - port] if other is None else other
        return own + other if port == 0 else other + own

    def state(self) -> Any:
        return {
            "rows": self._sides,
            "before": [incoming.before for incoming in self._incoming],
            "arrived": self._arrived,
        }

    def restore(self, state: Any) -> None:
        self._arrived = state["arrived"]
        for incoming, before in zip(self._incoming, state["before"], strict=True):
            incoming.before = before
        if "rows" in state:
            self._sides = state["rows"].opened(_same, _same)
        else:  # the checkpoint is of an early version, which stored one list for each input
            for port, side in enumerate(state["sides"]):
                for key, rows in side:
                    self._sides.put(key, rows, port)


def _same(rows: Rows) -> Rows:
    return rows


def _pair(port: int, own: int, other: int) -> tuple[int, int]:
    return (own, other) if port == 0 else (other, own)


def join_changes_by_rows(
    operator: JoinChanges, schemas: Sequence[Schema], output: Schema
) -> JoinChangesByRows:
    keys = [row_of_expressions(exprs, schema) for exprs, schema in zip(operator.keys, schemas, strict=True)]
    left, right = (len(schema.own) for schema in schemas)
    return JoinChangesByRows(operator, keys, predicate(operator.condition, output.own), (left, right))


def join_changes(operator: JoinChanges, context: StepContext) -> RowStep:
    return row_step(join_changes_by_rows(operator, context.schemas, context.node.schema), context)
