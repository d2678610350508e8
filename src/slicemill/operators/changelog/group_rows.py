"""GROUP BY over a changelog, processed row by row, with retractable aggregates.

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
from slicemill.operators.changelog.retraction import IncomingChanges, row_changes
from slicemill.operators.changelog.spec import GroupChanges
from slicemill.operators.row_step import row_of_expressions, row_of_items
from slicemill.operators.step import StepContext
from slicemill.time import EARLIEST
from slicemill.types import Row, Timed

_INCREMENTAL = frozenset(("count", "median", "percentile", "quantile", *STATISTICS))

NOTHING = object()


class RetractableAccumulator(Protocol):
    """Accumulator of one aggregate and one group, from which rows can be removed again."""

    def add(self, args: Row) -> None: ...
    def remove(self, args: Row) -> None: ...
    def value(self) -> object: ...
    def state(self) -> Any: ...
    def restore(self, state: Any) -> None: ...


class SortedValues:
    """Accumulator of min and max: sorted list of all values, in which NaN is last."""

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
    """Accumulator for any aggregate, which stores the argument rows of a group in arrival order."""

    def __init__(self, definition: RowAggregate) -> None:
        self._name, self._base = definition.name, base_of(definition)
        self._rows: list[Row] = []

    def add(self, args: Row) -> None:
        self._rows.append(args)

    def remove(self, args: Row) -> None:
        wanted = comparable(args)
        del self._rows[next(index for index, row in enumerate(self._rows) if comparable(row) == wanted)]

    def value(self) -> object:
        """Evaluate the aggregate over all stored rows.

        Return NOTHING if a user-defined aggregate returns no row.
        """
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
    if name in _INCREMENTAL and definition.statistic is not None:
        return definition.statistic
    if name in ("min", "max"):
        return lambda: SortedValues(name == "max")
    return lambda: GroupRows(definition)


@dataclass(slots=True)
class ChangingGroup:
    """State of one group: output key values, accumulators, and last emitted row.

    `rows` is the row count of a group of GROUP BY. For a group of a window, `changed` is the number of its
    first change since its row was emitted; None if the group has not changed.
    """

    values: Row
    accumulators: list[RetractableAccumulator]
    rows: int = 0
    emitted: Row | None = None
    changed: int | None = None

    def emit(self, now: Row | None) -> Sequence[Row]:
        """Store `now` as the result row of the group, and return the changes to emit.

        The changes replace the last emitted row of the group by `now`. None means that the group has no row.
        """
        before, self.emitted = self.emitted, now
        return row_changes(before, now)

    def stored(self) -> list[Any]:
        """Return the states of the group's accumulators, for a checkpoint."""
        return [accumulator.state() for accumulator in self.accumulators]


class GroupCalls:
    """Aggregate calls over groups whose rows can be retracted."""

    def __init__(self, calls: Sequence[AggregateCall], context: StepContext) -> None:
        (schema,) = context.schemas
        self._definitions = [context.definition(call) for call in calls]
        self._makes = [
            retractable_accumulator(call, definition)
            for call, definition in zip(calls, self._definitions, strict=True)
        ]
        self._arguments = [row_of_expressions(call.arguments, schema) for call in calls]

    def group(self, values: Row) -> ChangingGroup:
        """Return a new group with the given key values and empty accumulators."""
        return ChangingGroup(normalize_zeros(values), [make() for make in self._makes])

    def restored(self, values: Row, states: Sequence[Any], emitted: Row | None) -> ChangingGroup:
        """Return a group whose accumulators have the given stored states."""
        group = ChangingGroup(values, [make() for make in self._makes], emitted=emitted)
        for accumulator, state in zip(group.accumulators, states, strict=True):
            accumulator.restore(state)
        return group

    def add(self, group: ChangingGroup, row: Row) -> None:
        for accumulator, arguments in zip(group.accumulators, self._arguments, strict=True):
            accumulator.add(arguments(row))

    def remove(self, group: ChangingGroup, row: Row) -> None:
        for accumulator, arguments in zip(group.accumulators, self._arguments, strict=True):
            accumulator.remove(arguments(row))

    def __len__(self) -> int:
        return len(self._definitions)

    def row(self, group: ChangingGroup) -> Row | None:
        """Return the result row of a group: its key values, then its aggregate results.

        Return None if the aggregates return no row.
        """
        values = [accumulator.value() for accumulator in group.accumulators]
        rows = align(self._definitions, [[] if value is NOTHING else [value] for value in values])
        return group.values + rows[0] if rows else None


@dataclass(slots=True)
class ChangingGroups:
    """GROUP BY over a changelog, which processes rows one by one.

    If `retracts` is set, the first input column is the operation. An aggregate without GROUP BY has a single
    group, which exists even if it has no rows.
    """

    group: Callable[[Row], Row] | None
    calls: GroupCalls
    retracts: bool
    inputs: int = 1
    waits_for_time: bool = False
    _groups: ObjectsByKey[Row, ChangingGroup] = field(init=False)
    _incoming: IncomingChanges = field(init=False)

    def __post_init__(self) -> None:
        self._groups = ObjectsByKey(_plain, self._restored)
        self._incoming = IncomingChanges(self.retracts)

    def begin(self) -> Sequence[Timed]:
        """Return the initial insert of an aggregate without GROUP BY, whose row exists before any input."""
        if self.group is not None or self._groups.get(()) is not None:
            return ()
        key, group = self._group_of(())
        return [Timed(EARLIEST, row) for row in self._emit(key, group)]

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        change = self._incoming.read(tuple_.row)
        if change is None:
            return ()
        touched: dict[Row, ChangingGroup] = {}
        retracted, inserted = change
        if retracted is not None:
            key, group = self._group_of(retracted)
            group.rows -= 1
            self.calls.remove(group, retracted)
            touched[key] = group
        if inserted is not None:
            key, group = self._group_of(inserted)
            group.rows += 1
            self.calls.add(group, inserted)
            touched[key] = group
        return [Timed(tuple_.ts, row) for key, group in touched.items() for row in self._emit(key, group)]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def _group_of(self, row: Row) -> tuple[Row, ChangingGroup]:
        values = self.group(row) if self.group else ()
        key = comparable(values)
        group = self._groups.change(key)
        if group is None:
            group = self.calls.group(values)
            self._groups.put(key, group)
        return key, group

    def _emit(self, key: Row, group: ChangingGroup) -> Sequence[Row]:
        if group.rows or self.group is None:
            return group.emit(self.calls.row(group) if len(self.calls) else group.values)
        self._groups.remove(key)
        return group.emit(None)

    def state(self) -> Any:
        return {"by_key": self._groups, "before": self._incoming.before}

    def restore(self, state: Any) -> None:
        self._incoming.before = state["before"]
        if "by_key" in state:
            self._groups = state["by_key"].opened(_plain, self._restored)
        else:  # the checkpoint is of an early version, which stored all groups in one dict
            for key, group in state["groups"].items():
                self._groups.put(key, self._restored(group))

    def _restored(self, plain: Any) -> ChangingGroup:
        values, states, rows, emitted = plain
        group = self.calls.restored(values, states, emitted)
        group.rows = rows
        return group


def _plain(group: ChangingGroup) -> Any:
    return group.values, group.stored(), group.rows, group.emitted


def changing_groups(operator: GroupChanges, context: StepContext) -> ChangingGroups:
    group = row_of_items(operator.group_by, context.schemas[0]) if operator.group_by else None
    return ChangingGroups(group, GroupCalls(operator.calls, context), operator.retracts)
