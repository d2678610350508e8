"""GROUP BY over a changelog, for calls with retractable accumulators.

Both halves of an update are one change. If both belong to one group, one change is emitted; otherwise one for
each group:

    _op             group   value      sum   emitted
    insert          a       5          5     insert a 5
    update_before   a       5          0
    update_after    a       7          7     update a from 5 to 7
    update_before   a       7          -     delete a 7: it has no rows
    update_after    b       7          7     insert b 7
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.changes import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    adds,
    ops_of,
    same_values,
    with_ops,
)
from slicemill.columns.intervals import last_of_each
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.columns.numbered import RowsByNumber, grown
from slicemill.operators.context import StepContext
from slicemill.operators.group_changes.first_row import FirstRowOfAll
from slicemill.operators.group_changes.spec import GroupChanges
from slicemill.operators.over.grouped_rows import Figures, GroupedRows, Mask
from slicemill.operators.over.running import RetractableFigure, retractable_figure
from slicemill.operators.partitioned import Columns
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as

_FORGOTTEN = 1_000  # minimum number of empty groups that are deleted together


@stored_as(
    "group_changes.retracting",
    version=2,
    upgrade={1: lambda plain: {**plain, "told": RowsByNumber.of_all(plain["told"])}},
)
@dataclass(slots=True)
class RetractingGroupsState:
    """Groups, their row counts and last emitted values, and accumulators."""

    figures: list[RetractableFigure]
    keys: Keys = field(default_factory=Keys)
    rows: Figures = field(default_factory=lambda: np.zeros(0, np.int64))
    told: RowsByNumber = field(default_factory=RowsByNumber)
    next_seq: int = 0


class RetractingGroupsStep:
    """Execution step for changelog input."""

    def __init__(self, operator: GroupChanges, context: StepContext, state: RetractingGroupsState) -> None:
        (schema,) = context.schemas
        self.state = state
        self._calls = operator.calls
        keys = [item.expr for item in operator.group_by]
        self._columns = Columns([keys, *(call.arguments for call in operator.calls)], schema)
        self._values = [column.name for call in operator.calls for column in call.columns]
        self._names = [*(item.name for item in operator.group_by), *self._values]
        self._grouped = bool(operator.group_by)
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._first_row = FirstRowOfAll.of(operator, context)
        self.emits_first_row = False

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        first = self._schema.empty_table()
        if self.emits_first_row and self._first_row is not None and self._first_row.enter(self.state.told):
            first = self._first_row.inserted(self._schema)
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
        state.rows = grown(state.rows, rows.count)
        sizes_before = state.rows[rows.touched]
        sizes = rows.counted(np.ones(len(ops), np.bool_), state.rows)
        values = [
            figure.run(rows, given, call)
            for figure, given, call in zip(state.figures, arguments, self._calls, strict=True)
        ]
        now = pa.table([*state.keys.values(numbered), *values], names=self._names)
        state.told.reach(rows.count)
        places = state.told.places[rows.touched]
        known = places >= 0
        told = state.told.added.behind(places[known], now)
        kept = int(np.count_nonzero(known))
        # The emitted changes, by group: the row emitted before each of them, and a flag if there was one.
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
        order: Figures,
        before: Figures,
        after: Figures,
        was: Mask,
        is_: Mask,
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
        places = np.stack([before[arranged], after[arranged]], axis=1).reshape(-1)[chosen]
        # The output of an update has the time of its second half.
        causes = pa.array(np.repeat(order + (ops[order] == UPDATE_BEFORE), 2)[chosen])
        first, self.state.next_seq = self.state.next_seq, self.state.next_seq + len(places)
        system = {TS: table.column(TS).take(causes), SEQ: np.arange(first, self.state.next_seq)}
        system[ARRIVAL] = table.column(ARRIVAL).take(causes)
        rows = told.take(pa.array(places))
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
    """Return the step, or None if rows are processed one by one.

    This is necessary if a call has no retractable accumulator, or if the stored state is that of the row
    operator.
    """
    if isinstance(context.state, RetractingGroupsState):
        return RetractingGroupsStep(operator, context, context.state)
    figures = [figure for call in operator.calls if (figure := retractable_figure(call)) is not None]
    if context.state is not None or not figures or len(figures) < len(operator.calls):
        return None
    return RetractingGroupsStep(operator, context, RetractingGroupsState(figures))
