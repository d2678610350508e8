"""Window aggregates with early and late emissions, processed row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slicemill.aggregates.definition import comparable
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.operators.changelog.group_rows import ChangingGroup, GroupCalls
from slicemill.operators.changelog.spec import WindowChanges
from slicemill.operators.row_step import RowStep, row_of_items, row_step
from slicemill.operators.step import StepContext
from slicemill.types import Row, Timed


@dataclass(slots=True)
class ChangingWindows:
    """Window aggregates with early and late emissions, which process rows one by one.

    The state has the groups of all windows whose results can still change. `group` returns the group keys of
    a row. `time` returns the event time of a row; None if the operator does not read late rows.
    """

    operator: WindowChanges
    group: Callable[[Row], Row]
    time: Callable[[Row], int] | None
    calls: GroupCalls
    inputs: int = 1
    waits_for_time: bool = True
    # State of each group in each window, by group keys and window end.
    _groups: ObjectsByKey[Row, ChangingGroup] = field(init=False)
    # Keys of the groups with unemitted changes, by the end of their open window.
    _changed: dict[int, dict[Row, None]] = field(default_factory=dict)
    _since: int | None = None  # time of the first unemitted change
    _changes: int = 0

    def __post_init__(self) -> None:
        self._groups = ObjectsByKey(_plain, self._restored)

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
                group = self.calls.group(values)
                self._groups.put(key, group, end)
            self.calls.add(group, row)
            if end <= now:
                out += self._emit(now, end, group)
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
        """Return the time of the next emission; None if no open window has unemitted changes.

        An emission is due at the end of a window, and at each multiple of the EARLY interval before this end.
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
                out += self._emit(moment, end, group)
        if not self._changed:
            self._since = None
        return out

    @property
    def _late_us(self) -> int:
        return 0 if self.operator.late is None else self.operator.late.within_us

    def _emit(self, moment: int, end: int, group: ChangingGroup) -> list[Timed]:
        row = self.calls.row(group)
        now = None if row is None else (*row, self.operator.start(end), end)
        return [Timed(moment, change) for change in group.emit(now)]

    def state(self) -> Any:
        return {"groups": self._groups, "since": self._since, "changes": self._changes}

    def restore(self, state: Any) -> None:
        self._since = state["since"]
        if "windows" in state:  # the checkpoint is of an early version, which stored a dict of windows
            self._restore_windows(state["windows"], state["changed"])
            return
        self._groups, self._changes = state["groups"].opened(_plain, self._restored), state["changes"]
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
                self._groups.put(key, self._restored((values, calls, last, None)), end)
        for end, keys in changed.items():
            self._changed[end] = dict.fromkeys(keys)
            for key in keys:
                group = self._groups.change(key, end)
                assert group is not None, "it has changed"
                group.changed = self._changes
                self._changes += 1

    def _restored(self, plain: Any) -> ChangingGroup:
        *stored, changed = plain
        group = self.calls.restored(*stored)
        group.changed = changed
        return group


def _plain(group: ChangingGroup) -> Any:
    return group.values, group.stored(), group.emitted, group.changed


def window_changes(operator: WindowChanges, context: StepContext) -> RowStep:
    (schema,) = context.schemas
    late, time = operator.late, None
    if late is not None:
        index = schema.index(late.column)

        def time(row: Row) -> int:
            return int(row[index])  # type: ignore[call-overload,no-any-return]

    group, calls = row_of_items(operator.group_by, schema), GroupCalls(operator.calls, context)
    return row_step(ChangingWindows(operator, group, time, calls), context)
