"""Base aggregates with GROUP BY (M30), using a hash table.

On a stream, a call emits what INITIALIZE or ITERATE returns for the current tuple. At the end of a finite
input, TERMINATE emits the results of blocking aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slicemill.aggregates.definition import (
    BaseAccumulator,
    RowCall,
    Stepper,
    align,
    base_of,
    comparable,
    normalize_zeros,
)
from slicemill.types import Row, Timed


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """The grouping values and running calls of a group."""

    values: Row
    running: list[tuple[BaseAccumulator, Stepper]]


class GroupAggregateOperator:
    """Emits the group's values, then the columns of each call.

    `group` returns the GROUP BY values of a row. Without GROUP BY there is a single group, which exists even
    for empty input, as in SQL.
    """

    inputs = 1
    waits_for_time = False

    def __init__(self, calls: Sequence[RowCall], group: Callable[[Row], Row] | None = None) -> None:
        self._calls = tuple(calls)
        self._definitions = [call.definition for call in self._calls]
        self._bases = [base_of(definition) for definition in self._definitions]
        self._group = group
        self._groups: dict[Row, RunningGroup] = {}
        self._latest_ts = 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._latest_ts = tuple_.ts
        values = self._group(tuple_.row) if self._group else ()
        key = comparable(values)
        if key not in self._groups:
            self._groups[key] = self._fresh(normalize_zeros(values))
        group = self._groups[key]
        returned = [
            stepper.step(call.arguments(tuple_.row))
            for call, (_, stepper) in zip(self._calls, group.running, strict=True)
        ]
        return [Timed(tuple_.ts, group.values + row) for row in align(self._definitions, returned)]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        """Return the TERMINATE results, at the time of the last tuple.

        Groups are in order of first appearance.
        """
        if self._group is None and not self._groups:
            self._groups[()] = self._fresh(())
        return [
            Timed(self._latest_ts, group.values + row)
            for group in self._groups.values()
            for row in align(self._definitions, [instance.terminate() for instance, _ in group.running])
        ]

    def state(self) -> Any:
        groups = {
            key: (group.values, [stepper.state() for _, stepper in group.running])
            for key, group in self._groups.items()
        }
        return {"groups": groups, "latest_ts": self._latest_ts}

    def restore(self, state: Any) -> None:
        self._latest_ts = state["latest_ts"]
        for key, (values, kept) in state["groups"].items():
            self._groups[key] = self._fresh(values)
            for (_, stepper), each in zip(self._groups[key].running, kept, strict=True):
                stepper.restore(each)

    def _fresh(self, values: Row) -> RunningGroup:
        instances = [base() for base in self._bases]
        return RunningGroup(values, [(instance, Stepper(instance)) for instance in instances])
