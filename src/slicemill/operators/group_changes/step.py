"""GROUP BY over all history: what aggregates with OVER give at each tuple, and what they gave before it.

The values after a tuple are those of windows without a beginning, partitioned by the groups. Those before it
are what the last tuple of its group was given: an earlier one of this run, or the one that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slicemill.columns.changes import changes, without_unchanged
from slicemill.columns.intervals import by_partition, last_of_each
from slicemill.esl.types.query import FrameUnit, Window, WindowCall
from slicemill.operators.context import StepContext
from slicemill.operators.group_changes.rows import changing_groups
from slicemill.operators.group_changes.spec import GroupChanges
from slicemill.operators.over.calls import WindowCalls, WindowState
from slicemill.operators.partitioned import Partitioned
from slicemill.operators.row_step import RowStep, row_step
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as

_SYSTEM = (TS, SEQ, ARRIVAL)


@stored_as("group_changes", version=1)
@dataclass(slots=True)
class GroupChangesState:
    """What windows keep, and what was told last of each group, by the number of its key there."""

    windows: WindowState | None = None
    told: pa.Table | None = field(default=None)


class GroupChangesStep:
    """Tuples that only come."""

    def __init__(self, operator: GroupChanges, context: StepContext) -> None:
        (schema,) = context.schemas
        keys = tuple(item.expr for item in operator.group_by)
        window = Window(FrameUnit.RANGE, None)
        calls = [
            WindowCall(call.name, call.arguments, call.distinct, keys, window, call.columns)
            for call in operator.calls
        ]
        self._groups = Partitioned(keys, schema)
        self._group_names = [item.name for item in operator.group_by]
        self._value_names = [column.name for call in operator.calls for column in call.columns]
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self.state = context.state if isinstance(context.state, GroupChangesState) else GroupChangesState()
        self._calls = WindowCalls(calls, schema, self.state.windows, context.seq_bits)
        self.state.windows = self._calls.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table = tables[0]
        if not table.num_rows:
            return self._schema.empty_table(), complete[0]
        keys = self._calls.state.partitions[0].keys
        answered, until = self._calls.run(table, complete[0])
        numbered = self._groups.numbers(table, keys)
        values = answered.select(self._value_names).combine_chunks()
        known = 0 if self.state.told is None else self.state.told.num_rows
        told = values if self.state.told is None else pa.concat_tables([self.state.told, values])
        order, partitions, head = by_partition(numbered, len(keys) or 1)
        # By row, where the values before it are among what was told.
        places = np.arange(len(order))
        source = np.empty(len(order), np.int64)
        source[order] = np.where(
            places > head,
            known + order[places - 1],
            np.where(partitions < known, partitions, -1),
        )
        was = source >= 0
        system = table.select(list(_SYSTEM)).combine_chunks()
        groups = keys.values(numbered)
        names = [*_SYSTEM, *self._group_names, *self._value_names]
        before = told.take(pa.array(np.maximum(source, 0)))
        made = changes(
            pa.table([*system.columns, *groups, *before.columns], names=names),
            pa.table([*system.columns, *groups, *values.columns], names=names),
            was,
            np.ones(len(was), np.bool_),
        )
        latest = np.arange(len(keys) or 1)
        last = last_of_each(partitions)
        latest[partitions[last]] = known + order[last]
        self.state.told = told.take(pa.array(latest)).combine_chunks()
        return without_unchanged(made, self._value_names).cast(self._schema), until

    def due(self) -> int | None:
        return None


def group_changes(operator: GroupChanges, context: StepContext) -> GroupChangesStep | RowStep:
    if operator.by_rows:
        return row_step(changing_groups(operator, context), context)
    return GroupChangesStep(operator, context)
