"""GROUP BY over a changelog, row by row, with retractable aggregates.

Counts, sums, moments, percentiles and distinct values are maintained incrementally and exactly. For other
aggregates the rows of a group are stored in arrival order, and evaluated again after each change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slicemill.aggregates.definition import (
    RowAggregate,
    align,
    base_of,
    comparable,
    evaluate,
    normalize_zeros,
)
from slicemill.aggregates.lists import LISTS, check_length
from slicemill.aggregates.moments import STATISTICS
from slicemill.catalog.queries import AggregateCall
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.errors import SlicemillError
from slicemill.operators.changelog.spec import GroupChanges
from slicemill.operators.row_step import row_of_expressions, row_of_items
from slicemill.operators.step import StepContext
from slicemill.time import EARLIEST
from slicemill.types import Row, Timed

_KEPT_UP = frozenset(("count", "median", "percentile", "quantile", *STATISTICS))

NOTHING = object()


class RetractableAccumulator(Protocol):
    """Accumulator of a group that supports retraction."""

    def add(self, args: Row) -> None: ...
    def remove(self, args: Row) -> None: ...
    def value(self) -> object: ...
    def state(self) -> Any: ...
    def restore(self, state: Any) -> None: ...


class SortedValues:
    """Accumulator of min and max: a sorted multiset, NaN last."""

    def __init__(self, greatest: bool) -> None:
        self._index = -1 if greatest else 0
        self._values: list[tuple[bool, Any]] = []

    def add(self, args: Row) -> None:
        if args[0] is not None:
            insort(self._values, _in_order(args[0]))

    def remove(self, args: Row) -> None:
        if args[0] is not None:
            del self._values[bisect_left(self._values, _in_order(args[0]))]

    def value(self) -> object:
        if not self._values:
            return None
        is_nan, value = self._values[self._index]
        return float("nan") if is_nan else value

    def state(self) -> list[tuple[bool, Any]]:
        return self._values

    def restore(self, state: list[tuple[bool, Any]]) -> None:
        self._values = state


def _in_order(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value != value else (False, value)


class GroupRows:
    """Accumulator of any aggregate: stores the group's rows in arrival order."""

    def __init__(self, definition: RowAggregate) -> None:
        self._name, self._base = definition.name, base_of(definition)
        self._rows: list[Row] = []

    def add(self, args: Row) -> None:
        self._rows.append(args)

    def remove(self, args: Row) -> None:
        wanted = comparable(args)
        del self._rows[next(index for index, row in enumerate(self._rows) if comparable(row) == wanted)]

    def value(self) -> object:
        """Evaluate the aggregate; NOTHING if a user-defined aggregate returns no row."""
        returned = evaluate(self._base, self._rows)
        if len(returned) > 1:
            raise SlicemillError(
                f"aggregate {self._name} gives {len(returned)} rows for a group of a table that changes; "
                "let its TERMINATE give one"
            )
        if returned and self._name.lower() in LISTS:
            values = returned[0]
            assert isinstance(values, tuple), "a list"
            check_length(len(values))
        return returned[0] if returned else NOTHING

    def state(self) -> list[Row]:
        return self._rows

    def restore(self, state: list[Row]) -> None:
        self._rows = state


def retractable_accumulator(
    call: AggregateCall, definition: RowAggregate
) -> Callable[[], RetractableAccumulator]:
    name = call.name.lower()
    if name in _KEPT_UP and definition.statistic is not None:
        return definition.statistic
    if name in ("min", "max"):
        return lambda: SortedValues(name == "max")
    return lambda: GroupRows(definition)


@dataclass(slots=True)
class ChangingGroup:
    """Group: output key values, accumulators, row count, last emitted row."""

    values: Row
    calls: list[RetractableAccumulator]
    rows: int = 0
    told: Row | None = None


@dataclass(slots=True)
class ChangingGroups:
    """Row operator of GROUP BY over a changelog.

    With `retracts` the first input column is the operation. Without GROUP BY there is a single group, which
    also exists without rows.
    """

    group: Callable[[Row], Row] | None
    calls: Sequence[tuple[RowAggregate, Callable[[], RetractableAccumulator], Callable[[Row], Row]]]
    retracts: bool
    inputs: int = 1
    waits_for_time: bool = False
    _groups: ObjectsByKey[Row, ChangingGroup] = field(init=False)
    _before: Row | None = None  # update_before row that waits for its update_after

    def __post_init__(self) -> None:
        self._groups = ObjectsByKey(_plain, self._made)

    def begin(self) -> Sequence[Timed]:
        """Return the row of a global aggregate over no rows."""
        if self.group is not None or self._groups.get(()) is not None:
            return ()
        key, group = self._group_of(())
        return [Timed(EARLIEST, row) for row in self._told(key, group)]

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        op = tuple_.row[0] if self.retracts else "insert"
        if op == "update_before":
            self._before = tuple_.row
            return ()
        leaves = tuple_.row if op == "delete" else self._before
        comes = None if op == "delete" else tuple_.row
        self._before = None
        touched: dict[Row, ChangingGroup] = {}
        for row, change in ((leaves, -1), (comes, 1)):
            if row is not None:
                key, group = self._group_of(row)
                self._change(group, row, change)
                touched[key] = group
        return [Timed(tuple_.ts, row) for key, group in touched.items() for row in self._told(key, group)]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def _group_of(self, row: Row) -> tuple[Row, ChangingGroup]:
        values = self.group(row) if self.group else ()
        key = comparable(values)
        group = self._groups.change(key)
        if group is None:
            group = ChangingGroup(normalize_zeros(values), [make() for _, make, _ in self.calls])
            self._groups.put(key, group)
        return key, group

    def _change(self, group: ChangingGroup, row: Row, change: int) -> None:
        group.rows += change
        for kept, (_, _, arguments) in zip(group.calls, self.calls, strict=True):
            (kept.add if change > 0 else kept.remove)(arguments(row))

    def _told(self, key: Row, group: ChangingGroup) -> list[Row]:
        now: Row | None = None
        if group.rows or self.group is None:
            values = [kept.value() for kept in group.calls]
            given = [[] if value is NOTHING else [value] for value in values]
            rows = align([definition for definition, _, _ in self.calls], given) if self.calls else [()]
            now = group.values + rows[0] if rows else None
        if not group.rows and self.group is not None:
            self._groups.remove(key)
        before, group.told = group.told, now
        return list(row_changes(before, now))

    def state(self) -> Any:
        return {"by_key": self._groups, "before": self._before}

    def restore(self, state: Any) -> None:
        self._before = state["before"]
        if "by_key" in state:
            self._groups = state["by_key"].opened(_plain, self._made)
        else:  # stored by versions without snapshots by key
            for key, group in state["groups"].items():
                self._groups.put(key, self._made(group))

    def _made(self, plain: Any) -> ChangingGroup:
        values, calls, rows, last = plain
        group = ChangingGroup(values, [make() for _, make, _ in self.calls], rows, last)
        for kept, each in zip(group.calls, calls, strict=True):
            kept.restore(each)
        return group


def _plain(group: ChangingGroup) -> Any:
    return group.values, [kept.state() for kept in group.calls], group.rows, group.told


def row_changes(before: Row | None, now: Row | None) -> Sequence[Row]:
    """Return the changes from one version of a row to the next."""
    if before is None:
        return () if now is None else (("insert", *now),)
    if now is None:
        return (("delete", *before),)
    if comparable(before) == comparable(now):
        return ()
    return (("update_before", *before), ("update_after", *now))


def changing_groups(operator: GroupChanges, context: StepContext) -> ChangingGroups:
    (schema,) = context.schemas
    calls = []
    for call in operator.calls:
        definition = context.definition(call)
        arguments = row_of_expressions(call.arguments, schema)
        calls.append((definition, retractable_accumulator(call, definition), arguments))
    group = row_of_items(operator.group_by, schema) if operator.group_by else None
    return ChangingGroups(group, calls, operator.retracts)
