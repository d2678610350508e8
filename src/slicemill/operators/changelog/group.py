"""GROUP BY over all history, whose result is a changelog of group rows.

Each input row changes the result row of its group. The aggregate values after the input row come from running
accumulators (`operators.window.running`), or from unbounded OVER windows partitioned by the group keys. The
values before the input row are the values after the previous row of its group. If the previous row is not in
this micro-batch, the state has these values as the last emitted row of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slicemill.aggregates.definition import align, base_of, evaluate
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.changelog import INSERT, UPDATE_BEFORE, adds, ops_of, with_ops
from slicemill.columns.keys import Keys, RowsByNumber, distinct_keys, extend_array
from slicemill.columns.order import renumber
from slicemill.columns.rows import plain_table
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.changelog.group_rows import changing_groups
from slicemill.operators.changelog.retraction import replace_emitted, version_changes
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


@stored_as(
    "group_changes",
    version=3,
    upgrade=_UPGRADES,
    stored_names={"accumulators": "figures", "emitted": "told"},
)
@dataclass(slots=True)
class GroupChangesState:
    """Group keys, accumulators, windows, and the last emitted row of each group.

    Version 1 of the state had all calls and the groups in windows. Version 2 had one table of emitted rows.
    """

    keys: Keys | None = None
    accumulators: list[RunningAggregate | None] | None = None  # one for each call; None for a windowed call
    windows: WindowState | None = None
    emitted: RowsByNumber = field(default_factory=RowsByNumber)


class GroupChangesStep:
    """Execution step of GROUP BY over insert-only input."""

    def __init__(self, operator: GroupChanges, context: StepContext) -> None:
        (schema,) = context.schemas
        keys = tuple(item.expr for item in operator.group_by)
        self.state = state = (
            context.state if isinstance(context.state, GroupChangesState) else _fresh(operator)
        )
        by_call = list(zip(operator.calls, state.accumulators or [None] * len(operator.calls), strict=True))
        self._accumulators = [(call, accumulator) for call, accumulator in by_call if accumulator]
        windowed = [call for call, accumulator in by_call if accumulator is None]
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
            values_counted(call) if isinstance(accumulator, RunningDistinct) else ()
            for call, accumulator in self._accumulators
        ]
        self._share_values()
        arguments = [call.arguments for call, _ in self._accumulators]
        self._columns = CompiledColumns([keys, *arguments, *self._counted_values], schema)
        self._group_names = [item.name for item in operator.group_by]
        self._value_names = [column.name for call in operator.calls for column in call.columns]
        # count(*) changes with every input row, so old and new result rows are never equal.
        counts_all = any(call.name.lower() == "count" and not call.arguments for call in operator.calls)
        self._compared = [] if counts_all else self._value_names
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._first_row = GlobalAggregateRow.of(operator, context)
        self.emits_first_row = False
        begun = any(len(accumulator.counts) for _, accumulator in self._accumulators)
        self._stored_groups = len(state.keys) if operator.group_by else int(begun)
        # After a query was replaced, the table of the new query lacks the groups of the state it took over.
        self._emits_all = state.emitted.used < self._stored_groups

    def _share_values(self) -> None:
        """Let `count(DISTINCT …)` calls over the same columns use one numbering of distinct values.

        States of earlier versions have one numbering for each call.
        """
        shared: dict[tuple[Expr, ...], Keys] = {}
        for (_, accumulator), counted in zip(self._accumulators, self._counted_values, strict=True):
            if isinstance(accumulator, RunningDistinct):
                values = shared.setdefault(counted, accumulator.values)
                if values.numbers_alike(accumulator.values):
                    accumulator.values = values

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        first = self._schema.empty_table()
        if self.emits_first_row and self._emits_all:
            self._emits_all = False
            first = self._inserts(tables[0], complete[0])
        elif (
            self.emits_first_row and self._first_row is not None and self._first_row.enter(self.state.emitted)
        ):
            first = self._first_row.as_insert(self._schema)
        if not tables[0].num_rows:
            return first, complete[0]
        made, until = self._run(tables[0], complete)
        return pa.concat_tables([first, made]) if first.num_rows else made, until

    def _inserts(self, table: pa.Table, complete: int) -> pa.Table:
        """Return the inserts of all stored groups whose row has not been emitted.

        The inserts precede the output rows of the micro-batch. An accumulator returns its current value for a
        row with NULL arguments and weight 0.
        """
        keys, emitted = self.state.keys, self.state.emitted
        assert keys is not None, "set when the step was made"
        emitted.reach(self._stored_groups)
        groups = np.flatnonzero(emitted.indices[: self._stored_groups] < 0)
        count = len(groups)
        rows = GroupedRows.of(groups.astype(np.int32), self._stored_groups, np.zeros(count, np.int64))
        found = self._accumulated(
            rows,
            [[_nulls(argument, count) for argument in call.arguments] for call, _ in self._accumulators],
            [[_nulls(value, count) for value in counted] for counted in self._counted_values],
        )
        values = pa.table({name: found[name] for name in self._value_names}).combine_chunks()
        emitted.replace(groups, values)
        ts = table.column(TS)[0].as_py() if table.num_rows else complete
        system = np.full(count, ts if ts < END else EARLIEST), np.zeros(count, np.int64)
        columns = [*system, system[1], *keys.values(rows.numbered), *values.columns]
        made = pa.table(columns, names=[*_SYSTEM, *self._group_names, *self._value_names])
        return with_ops(made, np.full(count, INSERT, np.int8)).cast(self._schema)

    def _run(self, table: pa.Table, complete: Sequence[int]) -> tuple[pa.Table, int]:
        keys, emitted = self.state.keys, self.state.emitted
        assert keys is not None, "set when the step was made"
        groups_of, *arguments = self._columns.of(table)
        numbered = keys.number(distinct_keys(groups_of, table.num_rows), groups_of)
        rows = GroupedRows.of(numbered, len(keys) or 1)
        calls = len(self._accumulators)
        until = complete[0]
        found: dict[str, pa.Array | pa.ChunkedArray] = {}
        if self._calls is not None:
            answered, until = self._calls.run(table, until)
            found = dict(zip(answered.column_names, answered.columns, strict=True))
        found |= self._accumulated(rows, arguments[:calls], arguments[calls:])
        values = pa.table({name: found[name] for name in self._value_names})
        emitted.reach(rows.count)
        versions, before, after = replace_emitted(
            emitted, rows.touched, rows.groups, rows.order, values.combine_chunks()
        )
        causes = pa.table(
            [*table.select(_SYSTEM).columns, *keys.values(numbered)], names=[*_SYSTEM, *self._group_names]
        )
        made = version_changes(causes, versions, rows.in_rows(before), rows.in_rows(after), self._compared)
        return made.cast(self._schema), until

    def _accumulated(
        self, rows: GroupedRows, arguments: Sequence[list[pa.Array]], counted: Sequence[list[pa.Array]]
    ) -> dict[str, pa.Array]:
        """Return for each accumulator its result column, with the value after each input row."""
        found = {}
        numbered: dict[int, Int32s] = {}  # value numbers of the rows, by numbering (shared by several calls)
        for (call, accumulator), columns, values in zip(self._accumulators, arguments, counted, strict=True):
            if isinstance(accumulator, RunningDistinct):
                numbering = id(accumulator.values)
                if numbering not in numbered:
                    numbered[numbering] = accumulator.number(rows, values)
                found[call.columns[0].name] = accumulator.run_over(rows, columns, numbered[numbering])
            else:
                found[call.columns[0].name] = accumulator.run(rows, columns, call)
        return found

    def due(self) -> int | None:
        return None


def _fresh(operator: GroupChanges) -> GroupChangesState:
    return GroupChangesState(Keys(), [running_aggregate(call) for call in operator.calls])


def _nulls(expr: Expr, count: int) -> pa.Array:
    return pa.nulls(count, arrow_type(expr.type))


def taken_over(_: GroupChanges, state: object, calls: Sequence[int]) -> GroupChangesState:
    """Build the state of a query from the state of the query that it replaces.

    `calls` has for each new call the position of the former call whose accumulator it takes over.
    """
    accumulators = state.accumulators if isinstance(state, GroupChangesState) else None
    if accumulators is None or any(accumulators[call] is None for call in calls):
        raise not_taken_over()
    assert isinstance(state, GroupChangesState)
    return GroupChangesState(state.keys, [deepcopy(accumulators[call]) for call in calls])


def group_changes(
    operator: GroupChanges, context: StepContext
) -> GroupChangesStep | RetractingGroupsStep | RowStep:
    if not operator.one_subtask:
        return GroupChangesStep(operator, context)
    step = None if operator.by_rows else retracting_groups(operator, context)
    return step or row_step(changing_groups(operator, context), context)


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


_EVICTED = 1_000  # empty groups are evicted only if there are at least this many


@stored_as(
    "group_changes.retracting",
    version=2,
    upgrade={1: lambda plain: {**plain, "told": RowsByNumber.of_all(plain["told"])}},
    stored_names={"accumulators": "figures", "emitted": "told"},
)
@dataclass(slots=True)
class RetractingGroupsState:
    """Group keys, and the row count, accumulators and last emitted values of each group."""

    accumulators: list[RetractableAggregate]
    keys: Keys = field(default_factory=Keys)
    rows: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    emitted: RowsByNumber = field(default_factory=RowsByNumber)
    next_seq: int = 0


class RetractingGroupsStep:
    """Execution step of GROUP BY over a changelog."""

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
        if self.emits_first_row and self._first_row and self._first_row.enter(self.state.emitted):
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
        # An update_before row causes no change if its update_after row belongs to the same group.
        emits, halves = np.ones(len(ops), np.bool_), np.flatnonzero(ops == UPDATE_BEFORE)
        emits[halves] = numbered[halves] != numbered[halves + 1]
        signs = np.where(adds(ops), np.int64(1), np.int64(-1))
        rows = GroupedRows.of(numbered, len(state.keys) or 1, signs, emits)
        state.rows = extend_array(state.rows, rows.count)
        sizes_before = state.rows[rows.touched]
        sizes = rows.counted(np.ones(len(ops), np.bool_), state.rows)
        values = [
            accumulator.run(rows, given, call)
            for accumulator, given, call in zip(state.accumulators, arguments, self._calls, strict=True)
        ]
        now = pa.table([*state.keys.values(numbered), *values], names=self._names)
        state.emitted.reach(rows.count)
        emitting = emits[rows.order]
        order, groups = rows.order[emitting], rows.groups[emitting]
        versions, before, after = replace_emitted(state.emitted, rows.touched, groups, order, now)
        if self._grouped:  # a group without rows has no result row
            exists = sizes[order] > 0
            first = np.ones(len(order), np.bool_)
            first[1:] = groups[1:] != groups[:-1]
            existed = np.where(first, sizes_before[groups] > 0, np.roll(exists, 1))
            before, after = np.where(existed, before, -1), np.where(exists, after, -1)
        arranged = np.argsort(order)
        # The output of an update has the timestamp of its update_after row.
        caused = order[arranged] + (ops[order[arranged]] == UPDATE_BEFORE)
        causes = table.select(_SYSTEM).take(pa.array(caused))
        made = version_changes(causes, versions, before[arranged], after[arranged], self._values)
        made = renumber(made, state.next_seq)
        state.next_seq += made.num_rows
        self._evict()
        return made.cast(self._schema)

    def _evict(self) -> None:
        """Evict groups without rows if there are many such groups."""
        state = self.state
        alive = state.rows > 0
        empty = len(alive) - int(np.count_nonzero(alive))
        if self._grouped and empty >= max(_EVICTED, len(alive) // 2):
            state.keys.keep(alive)
            state.emitted.keep(alive)
            state.rows = state.rows[alive]
            for accumulator in state.accumulators:
                accumulator.keep(alive)

    def due(self) -> int | None:
        return None


def retracting_groups(operator: GroupChanges, context: StepContext) -> RetractingGroupsStep | None:
    """Return the execution step of GROUP BY over a changelog, for whole batches of rows.

    Return None if rows must be processed one by one. This is necessary if a call has no retractable
    accumulator, or if the stored state is of the operator that processes rows one by one.
    """
    if isinstance(context.state, RetractingGroupsState):
        return RetractingGroupsStep(operator, context, context.state)
    found = [one for call in operator.calls if (one := retractable_aggregate(call)) is not None]
    if context.state is not None or not found or len(found) < len(operator.calls):
        return None
    return RetractingGroupsStep(operator, context, RetractingGroupsState(found))


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
    """Result row of an aggregate without GROUP BY (global aggregate) over no input rows."""

    values: pa.Table

    @staticmethod
    def of(operator: GroupChanges, context: StepContext) -> GlobalAggregateRow | None:
        """Return the result row of an aggregate without GROUP BY over no rows; None with GROUP BY."""
        if operator.group_by:
            return None
        definitions = [context.definition(call) for call in operator.calls]
        values = [evaluate(base_of(definition), ()) for definition in definitions]
        (row,) = align(definitions, values) if definitions else [()]
        return GlobalAggregateRow(plain_table([row], context.node.schema.own))

    def enter(self, emitted: RowsByNumber) -> bool:
        """Store the row of a global aggregate as emitted, unless a row was emitted before.

        Return True if the row was stored.
        """
        emitted.reach(1)
        if emitted.indices[0] >= 0:
            return False
        emitted.replace(np.zeros(1, np.int64), self.values)
        return True

    def as_insert(self, schema: pa.Schema) -> pa.Table:
        """Return the insert of the global aggregate's row over no input rows.

        The insert precedes all other changes, so its sequence number is 0.
        """
        system = {TS: EARLIEST, SEQ: 0, ARRIVAL: 0, OP: INSERT}
        columns = [
            pa.array([system[field.name]], field.type)
            if field.name in system
            else self.values.column(field.name).cast(field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)
