"""GROUP BY over all history: group values before and after each row.

Each input row updates its group, from the aggregate values before the row to those after it. The values after
a row come from running accumulators (`operators.window.running`), or from unbounded OVER windows partitioned
by the group keys. The values before a row are those after the previous row of its group. If the previous row
is not in this run, these values are stored as the last emitted row.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.definition import align, base_of, evaluate
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.changelog import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    adds,
    ops_of,
    same_values,
    with_ops,
    without_unchanged,
)
from slicemill.columns.keys import Keys, RowsByNumber, distinct_keys, extend_array
from slicemill.columns.ranges import last_of_each
from slicemill.columns.rows import plain_table
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Bools, Int32s, Int64s
from slicemill.operators.changelog.group_rows import changing_groups
from slicemill.operators.changelog.spec import GroupChanges
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.step import CompiledColumns, StepContext
from slicemill.operators.window.over import WindowCalls, WindowState
from slicemill.operators.window.running import (
    GroupedRows,
    RetractableAggregate,
    RunningAggregate,
    RunningDistinct,
    retractable_aggregate,
    running_aggregate,
    values_counted,
)
from slicemill.operators.window.state_takeover import not_taken_over
from slicemill.time import EARLIEST, END
from slicemill.types import OP

_SYSTEM = (TS, SEQ, ARRIVAL)


_UPGRADES = {
    1: lambda plain: {**plain, "keys": None, "figures": None},
    2: lambda plain: {**plain, "told": RowsByNumber.of_all(plain["told"])},
}


@stored_as("group_changes", version=3, upgrade=_UPGRADES)
@dataclass(slots=True)
class GroupChangesState:
    """Groups, accumulators, windows, and the last emitted row by group.

    Version 1 had all calls and the groups in windows; version 2 had one table of emitted rows.
    """

    keys: Keys | None = None
    figures: list[RunningAggregate | None] | None = None  # accumulator of each call; None for a windowed call
    windows: WindowState | None = None
    told: RowsByNumber = field(default_factory=RowsByNumber)


class GroupChangesStep:
    """Execution step for insert-only input."""

    def __init__(self, operator: GroupChanges, context: StepContext) -> None:
        (schema,) = context.schemas
        keys = tuple(item.expr for item in operator.group_by)
        self.state = state = (
            context.state if isinstance(context.state, GroupChangesState) else _fresh(operator)
        )
        figures = state.figures or [None] * len(operator.calls)
        self._figures = [(call, kept) for call, kept in zip(operator.calls, figures, strict=True) if kept]
        windowed = [call for call, kept in zip(operator.calls, figures, strict=True) if kept is None]
        window = Window(FrameUnit.RANGE, None)
        self._calls = None
        if windowed:
            calls = [
                WindowCall(call.name, call.arguments, call.distinct, keys, window, call.columns)
                for call in windowed
            ]
            self._calls = WindowCalls(calls, schema, state.windows, context.seq_bits)
            state.windows = self._calls.state
        if state.keys is None:
            assert self._calls is not None, "the first version had all in windows"
            state.keys = self._calls.state.partitions[0].keys
        self._counted_values: list[tuple[Expr, ...]] = [
            values_counted(call) if isinstance(figure, RunningDistinct) else ()
            for call, figure in self._figures
        ]
        self._share_values()
        arguments = [call.arguments for call, _ in self._figures]
        self._columns = CompiledColumns([keys, *arguments, *self._counted_values], schema)
        self._group_names = [item.name for item in operator.group_by]
        self._value_names = [column.name for call in operator.calls for column in call.columns]
        # count(*) changes with every row, so its changes need no comparison.
        self._counts_all = any(call.name.lower() == "count" and not call.arguments for call in operator.calls)
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._first_row = GlobalAggregateRow.of(operator, context)
        self.emits_first_row = False
        begun = any(len(figure.counts) for _, figure in self._figures)
        self._groups_kept = len(state.keys) if operator.group_by else int(begun)
        # State that was taken over has groups that are not in the table of the new definition yet.
        self._emits_all = state.told.used < self._groups_kept

    def _share_values(self) -> None:
        """Let calls that count the same values share a value numbering.

        Older states have one numbering for each call.
        """
        shared: dict[tuple[Expr, ...], Keys] = {}
        for (_, figure), counted in zip(self._figures, self._counted_values, strict=True):
            if isinstance(figure, RunningDistinct):
                values = shared.setdefault(counted, figure.values)
                if values.numbers_alike(figure.values):
                    figure.values = values

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        first = self._schema.empty_table()
        if self.emits_first_row and self._emits_all:
            self._emits_all = False
            first = self._inserts(tables[0], complete[0])
        elif self.emits_first_row and self._first_row is not None and self._first_row.enter(self.state.told):
            first = self._first_row.as_insert(self._schema)
        if not tables[0].num_rows:
            return first, complete[0]
        made, until = self._run(tables[0], complete)
        return pa.concat_tables([first, made]) if first.num_rows else made, until

    def _inserts(self, table: pa.Table, complete: int) -> pa.Table:
        """Return inserts of all groups that have not been emitted.

        The inserts precede the rows of the run. An accumulator returns its current value for a row with NULL
        arguments and weight 0.
        """
        keys, told = self.state.keys, self.state.told
        assert keys is not None, "set when the step was made"
        told.reach(self._groups_kept)
        groups = np.flatnonzero(told.indices[: self._groups_kept] < 0)
        count = len(groups)
        rows = GroupedRows.of(groups.astype(np.int32), self._groups_kept, np.zeros(count, np.int64))
        found = {}
        for (call, figure), counted in zip(self._figures, self._counted_values, strict=True):
            nothing = [_nulls(argument, count) for argument in call.arguments]
            if isinstance(figure, RunningDistinct):
                numbered = figure.number(rows, [_nulls(value, count) for value in counted])
                found[call.columns[0].name] = figure.run_over(rows, nothing, numbered)
            else:
                found[call.columns[0].name] = figure.run(rows, nothing, call)
        values = pa.table({name: found[name] for name in self._value_names}).combine_chunks()
        told.replace(groups, values)
        ts = table.column(TS)[0].as_py() if table.num_rows else complete
        system = np.full(count, ts if ts < END else EARLIEST), np.zeros(count, np.int64)
        columns = [*system, system[1], *keys.values(rows.numbered), *values.columns]
        made = pa.table(columns, names=[*_SYSTEM, *self._group_names, *self._value_names])
        return with_ops(made, np.full(count, INSERT, np.int8)).cast(self._schema)

    def _run(self, table: pa.Table, complete: Sequence[int]) -> tuple[pa.Table, int]:
        keys = self.state.keys
        assert keys is not None, "set when the step was made"
        found: dict[str, pa.Array | pa.ChunkedArray] = {}
        until = complete[0]
        if self._calls is not None:
            answered, until = self._calls.run(table, complete[0])
            found |= {
                name: answered.column(name) for name in self._value_names if name in answered.column_names
            }
        groups_of, *arguments = self._columns.of(table)
        numbered = keys.number(distinct_keys(groups_of, table.num_rows), groups_of)
        rows = GroupedRows.of(numbered, len(keys) or 1)
        given, counted = arguments[: len(self._figures)], arguments[len(self._figures) :]
        values_of: dict[int, Int32s] = {}  # by numbering of values, which several calls may share
        for (call, figure), columns, values in zip(self._figures, given, counted, strict=True):
            if isinstance(figure, RunningDistinct):
                numbering = id(figure.values)
                if numbering not in values_of:
                    values_of[numbering] = figure.number(rows, values)
                found[call.columns[0].name] = figure.run_over(rows, columns, values_of[numbering])
            else:
                found[call.columns[0].name] = figure.run(rows, columns, call)
        values = pa.table({name: found[name] for name in self._value_names}).combine_chunks()
        told = self.state.told
        told.reach(rows.count)
        indices = told.indices[rows.touched]
        known = indices >= 0
        both = told.added.behind(indices[known], values)
        kept = int(np.count_nonzero(known))
        order, groups = rows.order, rows.groups
        first = np.ones(len(order), np.bool_)
        first[1:] = groups[1:] != groups[:-1]
        # `both` has the stored values of known groups, then the values after each row. `source` is the index
        # in `both` of the values before each row.
        was = np.where(known, np.cumsum(known) - 1, -1)
        source = np.empty(len(order), np.int64)
        source[order] = np.where(first, was[groups], kept + np.roll(order, 1))
        made = self._told(table, both, source, kept, keys.values(numbered))
        told.replace(rows.touched, values.take(pa.array(order[last_of_each(groups)])))
        return made.cast(self._schema), until

    def _told(
        self, table: pa.Table, told: pa.Table, source: Int64s, known: int, groups: Sequence[pa.Array]
    ) -> pa.Table:
        """Return the changes of each row.

        `source` is the index of the values before the row, -1 for none.
        """
        count = len(source)
        halves = np.stack([source, known + np.arange(count)], axis=1).reshape(-1)
        chosen = np.flatnonzero(halves >= 0)
        ops = np.stack([np.full(count, UPDATE_BEFORE), np.where(source >= 0, UPDATE_AFTER, INSERT)], axis=1)
        rows = pa.array(chosen // 2)
        columns = [table.column(name).take(rows) for name in _SYSTEM]
        columns += [group.take(rows) for group in groups]
        columns += told.take(pa.array(halves[chosen])).columns
        made = pa.table(columns, names=[*_SYSTEM, *self._group_names, *self._value_names])
        made = with_ops(made, ops.reshape(-1)[chosen].astype(np.int8))
        return made if self._counts_all else without_unchanged(made, self._value_names)

    def due(self) -> int | None:
        return None


def _fresh(operator: GroupChanges) -> GroupChangesState:
    return GroupChangesState(Keys(), [running_aggregate(call) for call in operator.calls])


def _nulls(expr: Expr, count: int) -> pa.Array:
    return pa.nulls(count, arrow_type(expr.type))


def taken_over(_: GroupChanges, state: object, calls: Sequence[int]) -> GroupChangesState:
    """Return the state of a new definition; `calls` are its former calls' positions."""
    figures = state.figures if isinstance(state, GroupChangesState) else None
    if figures is None or any(figures[call] is None for call in calls):
        raise not_taken_over()
    assert isinstance(state, GroupChangesState)
    return GroupChangesState(state.keys, [deepcopy(figures[call]) for call in calls])


def group_changes(
    operator: GroupChanges, context: StepContext
) -> GroupChangesStep | RetractingGroupsStep | RowStep:
    if not operator.one_subtask:
        return GroupChangesStep(operator, context)
    kept = None if operator.by_rows else retracting_groups(operator, context)
    return kept or row_step(changing_groups(operator, context), context)


# GROUP BY over a changelog, for calls with retractable accumulators.
#
# An update_before row and its update_after row are processed as one change. If both belong to one group, one
# change of the group is emitted. Otherwise one change of each group is emitted:
#
#     _op             group   value      sum   emitted
#     insert          a       5          5     insert a 5
#     update_before   a       5          0
#     update_after    a       7          7     update a from 5 to 7
#     update_before   a       7          -     delete a 7: it has no rows
#     update_after    b       7          7     insert b 7


_FORGOTTEN = 1_000  # minimum number of empty groups that are deleted together


@stored_as(
    "group_changes.retracting",
    version=2,
    upgrade={1: lambda plain: {**plain, "told": RowsByNumber.of_all(plain["told"])}},
)
@dataclass(slots=True)
class RetractingGroupsState:
    """Groups, their row counts and last emitted values, and accumulators."""

    figures: list[RetractableAggregate]
    keys: Keys = field(default_factory=Keys)
    rows: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    told: RowsByNumber = field(default_factory=RowsByNumber)
    next_seq: int = 0


class RetractingGroupsStep:
    """Execution step for changelog input."""

    def __init__(self, operator: GroupChanges, context: StepContext, state: RetractingGroupsState) -> None:
        (schema,) = context.schemas
        self.state = state
        self._calls = operator.calls
        keys = [item.expr for item in operator.group_by]
        self._columns = CompiledColumns([keys, *(call.arguments for call in operator.calls)], schema)
        self._values = [column.name for call in operator.calls for column in call.columns]
        self._names = [*(item.name for item in operator.group_by), *self._values]
        self._grouped = bool(operator.group_by)
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._first_row = GlobalAggregateRow.of(operator, context)
        self.emits_first_row = False

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        first = self._schema.empty_table()
        if self.emits_first_row and self._first_row is not None and self._first_row.enter(self.state.told):
            first = self._first_row.as_insert(self._schema)
            self.state.next_seq += 1
        if not tables[0].num_rows:
            return first, complete[0]
        made = self._run(tables[0])
        return pa.concat_tables([first, made]) if first.num_rows else made, complete[0]

    def _run(self, table: pa.Table) -> pa.Table:
        state = self.state
        ops = ops_of(table)
        groups_of, *arguments = self._columns.of(table)
        numbered = state.keys.number(distinct_keys(groups_of, len(ops)), groups_of)
        tells, halves = np.ones(len(ops), np.bool_), np.flatnonzero(ops == UPDATE_BEFORE)
        tells[halves] = numbered[halves] != numbered[halves + 1]
        signs = np.where(adds(ops), np.int64(1), np.int64(-1))
        rows = GroupedRows.of(numbered, len(state.keys) or 1, signs, tells)
        state.rows = extend_array(state.rows, rows.count)
        sizes_before = state.rows[rows.touched]
        sizes = rows.counted(np.ones(len(ops), np.bool_), state.rows)
        values = [
            figure.run(rows, given, call)
            for figure, given, call in zip(state.figures, arguments, self._calls, strict=True)
        ]
        now = pa.table([*state.keys.values(numbered), *values], names=self._names)
        state.told.reach(rows.count)
        indices = state.told.indices[rows.touched]
        known = indices >= 0
        told = state.told.added.behind(indices[known], now)
        kept = int(np.count_nonzero(known))
        # By emitted change, in order of groups: the previous emitted row, and a flag if there was one.
        is_told = tells[rows.order]
        order, groups = rows.order[is_told], rows.groups[is_told]
        first = np.ones(len(order), np.bool_)
        first[1:] = groups[1:] != groups[:-1]
        before = np.where(first, (np.cumsum(known) - 1)[groups], kept + np.roll(order, 1))
        is_ = sizes[order] > 0 if self._grouped else np.ones(len(order), np.bool_)
        there = sizes_before[groups] > 0 if self._grouped else known[groups]
        was = np.where(first, there, np.roll(is_, 1))
        made = self._changes(table, ops, told.combine_chunks(), order, before, kept + order, was, is_)
        last = last_of_each(groups)
        state.told.replace(rows.touched[groups[last]], now.take(pa.array(order[last])))
        self._forget()
        return made

    def _changes(
        self,
        table: pa.Table,
        ops: NDArray[np.int8],
        told: pa.Table,
        order: Int64s,
        before: Int64s,
        after: Int64s,
        was: Bools,
        is_: Bools,
    ) -> pa.Table:
        both = np.flatnonzero(was & is_)
        same = np.ones(len(both), np.bool_)
        for name in self._values:
            same &= same_values(told.column(name), before[both], after[both])
        was, is_ = was.copy(), is_.copy()
        was[both[same]] = is_[both[same]] = False
        arranged = np.argsort(order)
        order, was, is_ = order[arranged], was[arranged], is_[arranged]
        chosen = np.stack([was, is_], axis=1).reshape(-1)
        kinds = np.stack([np.where(is_, UPDATE_BEFORE, DELETE), np.where(was, UPDATE_AFTER, INSERT)], axis=1)
        indices = np.stack([before[arranged], after[arranged]], axis=1).reshape(-1)[chosen]
        # The output of an update has the timestamp of its update_after row.
        causes = pa.array(np.repeat(order + (ops[order] == UPDATE_BEFORE), 2)[chosen])
        first, self.state.next_seq = self.state.next_seq, self.state.next_seq + len(indices)
        system = {TS: table.column(TS).take(causes), SEQ: np.arange(first, self.state.next_seq)}
        system[ARRIVAL] = table.column(ARRIVAL).take(causes)
        rows = told.take(pa.array(indices))
        made = pa.table([*system.values(), *rows.columns], names=[*system, *self._names])
        return with_ops(made, kinds.reshape(-1)[chosen].astype(np.int8)).cast(self._schema)

    def _forget(self) -> None:
        """Delete empty groups once there are many."""
        state = self.state
        alive = state.rows > 0
        dead = len(alive) - int(np.count_nonzero(alive))
        if self._grouped and dead >= max(_FORGOTTEN, len(alive) // 2):
            state.keys.keep(alive)
            state.told.keep(alive)
            state.rows = state.rows[alive]
            for figure in state.figures:
                figure.keep(alive)

    def due(self) -> int | None:
        return None


def retracting_groups(operator: GroupChanges, context: StepContext) -> RetractingGroupsStep | None:
    """Return the step; None if rows must be processed one by one.

    This is necessary if a call has no retractable accumulator, or if the stored state is that of the row
    operator.
    """
    if isinstance(context.state, RetractingGroupsState):
        return RetractingGroupsStep(operator, context, context.state)
    figures = [figure for call in operator.calls if (figure := retractable_aggregate(call)) is not None]
    if context.state is not None or not figures or len(figures) < len(operator.calls):
        return None
    return RetractingGroupsStep(operator, context, RetractingGroupsState(figures))


# Row of a global aggregate over no input rows.
#
# An aggregate without GROUP BY has one row for any input. For `count(*), sum(v)` over no rows, the row is
# `(0, NULL)`:
#
#     _ts        _op             count   sum
#     EARLIEST   insert          0       NULL    before the first row
#     1 s        update_before   0       NULL
#     1 s        update_after    1       5       after the first row, v = 5
#     2 s        update_before   1       5
#     2 s        update_after    0       NULL    after its deletion


@dataclass(frozen=True, slots=True)
class GlobalAggregateRow:
    """Values of a global aggregate over no rows, as a table of one row."""

    values: pa.Table

    @staticmethod
    def of(operator: GroupChanges, context: StepContext) -> GlobalAggregateRow | None:
        """Return the row, or None for an aggregate with GROUP BY."""
        if operator.group_by:
            return None
        definitions = [context.definition(call) for call in operator.calls]
        values = [evaluate(base_of(definition), ()) for definition in definitions]
        (row,) = align(definitions, values) if definitions else [()]
        return GlobalAggregateRow(plain_table([row], context.node.schema.own))

    def enter(self, told: RowsByNumber) -> bool:
        """Record the row as emitted, unless a row was emitted before."""
        told.reach(1)
        if told.indices[0] >= 0:
            return False
        told.replace(np.zeros(1, np.int64), self.values)
        return True

    def as_insert(self, schema: pa.Schema) -> pa.Table:
        """Return the change that inserts the row.

        The insert precedes all other rows, so its sequence number is 0.
        """
        system = {TS: EARLIEST, SEQ: 0, ARRIVAL: 0, OP: INSERT}
        columns = [
            pa.array([system[field.name]], field.type)
            if field.name in system
            else self.values.column(field.name).cast(field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)
