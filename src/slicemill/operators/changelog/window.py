"""Windows with early and late emissions, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slicemill.aggregates.definition import RowAggregate, align, comparable, normalize_zeros
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.operators.changelog.group_rows import (
    NOTHING,
    RetractableAccumulator,
    retractable_accumulator,
    row_changes,
)
from slicemill.operators.changelog.spec import WindowChanges
from slicemill.operators.row_step import RowStep, row_of_expressions, row_of_items, row_step
from slicemill.operators.step import StepContext
from slicemill.types import Row, Timed


@dataclass(slots=True)
class _WindowGroup:
    """Group of a window: key values, accumulators and last emitted row.

    `changed` is the sequence number of the first change since that row was emitted, None without a change.
    """

    values: Row
    calls: list[RetractableAccumulator]
    told: Row | None = None
    changed: int | None = None


@dataclass(slots=True)
class ChangingWindows:
    """Row operator of windows; state is groups of windows that can change.

    `group` returns the group keys of a row. `time` returns the event time of a row, if late rows are read.
    """

    operator: WindowChanges
    group: Callable[[Row], Row]
    time: Callable[[Row], int] | None
    calls: Sequence[tuple[RowAggregate, Callable[[], RetractableAccumulator], Callable[[Row], Row]]]
    inputs: int = 1
    waits_for_time: bool = True
    # Groups by key, with one part for each window end.
    _groups: ObjectsByKey[Row, _WindowGroup] = field(init=False)
    # By open window, the groups with unemitted changes; and the time of the first such change.
    _changed: dict[int, dict[Row, None]] = field(default_factory=dict)
    _since: int | None = None
    _changes: int = 0

    def __post_init__(self) -> None:
        self._groups = ObjectsByKey(_plain, self._made)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        operator, now, row = self.operator, tuple_.ts, tuple_.row
        ts = now if self.time is None else min(self.time(row), now)
        values = self.group(row)
        key = comparable(values)
        out: list[Timed] = []
        for end in operator.ends(ts):
            if end + self._late_us <= now:
                continue
            group = self._groups.change(key, end)
            if group is None:
                group = _WindowGroup(normalize_zeros(values), [make() for _, make, _ in self.calls])
                self._groups.put(key, group, end)
            for kept, (_, _, arguments) in zip(group.calls, self.calls, strict=True):
                kept.add(arguments(row))
            if end <= now:
                out += self._told(now, end, group)
            elif group.changed is None:
                group.changed = self._changes
                self._changes += 1
                self._changed.setdefault(end, {})[key] = None
                self._since = now if self._since is None else self._since
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        out: list[Timed] = []
        while (moment := self.due()) is not None and moment <= ts:
            out += self._at(moment)
        for end in self._groups.parts:
            if end + self._late_us <= ts:
                self._groups.drop(end)
        return out

    def finish(self) -> Sequence[Timed]:
        out: list[Timed] = []
        while (moment := self.due()) is not None:
            out += self._at(moment)
        return out

    def held_from(self) -> int | None:
        return self.due()

    def due(self) -> int | None:
        """Return the time of the next emission.

        This is the end of a window, or an earlier multiple of the EARLY interval.
        """
        every, end = self.operator.every_us, min(self._changed, default=None)
        if end is None or every is None or self._since is None:
            return end
        return min(end, (self._since // every + 1) * every)

    def _at(self, moment: int) -> list[Timed]:
        every = self.operator.every_us
        early = every is not None and moment % every == 0
        out: list[Timed] = []
        for end in sorted(end for end in self._changed if early or end == moment):
            for key in self._changed.pop(end):
                group = self._groups.change(key, end)
                assert group is not None, "its window is open"
                group.changed = None
                out += self._told(moment, end, group)
        if not self._changed:
            self._since = None
        return out

    @property
    def _late_us(self) -> int:
        return 0 if self.operator.late is None else self.operator.late.within_us

    def _told(self, moment: int, end: int, group: _WindowGroup) -> list[Timed]:
        values = [kept.value() for kept in group.calls]
        given = [[] if value is NOTHING else [value] for value in values]
        rows = align([definition for definition, _, _ in self.calls], given)
        bounds = (self.operator.start(end), end)
        now = group.values + rows[0] + bounds if rows else None
        before, group.told = group.told, now
        return [Timed(moment, row) for row in row_changes(before, now)]

    def state(self) -> Any:
        return {"groups": self._groups, "since": self._since, "changes": self._changes}

    def restore(self, state: Any) -> None:
        self._since = state["since"]
        if "windows" in state:  # stored by versions without snapshots by key
            self._restore_windows(state["windows"], state["changed"])
            return
        self._groups, self._changes = state["groups"].opened(_plain, self._made), state["changes"]
        changed = [
            (group.changed, end, key)
            for end in self._groups.parts
            for key, group in self._groups.items(end)
            if group.changed is not None
        ]
        for _, end, key in sorted(changed, key=lambda each: each[0]):
            self._changed.setdefault(end, {})[key] = None

    def _restore_windows(self, windows: Any, changed: Any) -> None:
        for end, groups in windows.items():
            for key, (values, calls, last) in groups.items():
                self._groups.put(key, self._made((values, calls, last, None)), end)
        for end, keys in changed.items():
            self._changed[end] = dict.fromkeys(keys)
            for key in keys:
                group = self._groups.change(key, end)
                assert group is not None, "it has changed"
                group.changed = self._changes
                self._changes += 1

    def _made(self, plain: Any) -> _WindowGroup:
        values, calls, last, changed = plain
        group = _WindowGroup(values, [make() for _, make, _ in self.calls], last, changed)
        for kept, each in zip(group.calls, calls, strict=True):
            kept.restore(each)
        return group


def _plain(group: _WindowGroup) -> Any:
    return group.values, [kept.state() for kept in group.calls], group.told, group.changed


def window_changes(operator: WindowChanges, context: StepContext) -> RowStep:
    (schema,) = context.schemas
    calls = []
    for call in operator.calls:
        definition = context.definition(call)
        arguments = row_of_expressions(call.arguments, schema)
        calls.append((definition, retractable_accumulator(call, definition), arguments))
    late, time = operator.late, None
    if late is not None:
        index = schema.index(late.column)

        def time(row: Row) -> int:
            return int(row[index])  # type: ignore[call-overload,no-any-return]

    return row_step(ChangingWindows(operator, row_of_items(operator.group_by, schema), time, calls), context)
