"""Execution step of EMIT EVERY and EMIT FINAL: emits the net changes of each interval.

The net change of a row compares the row before the first and after the last change of the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.changelog import DELETE, INSERT, adds, ops_of, with_ops
from slicemill.columns.keys import distinct_keys
from slicemill.columns.order import renumber
from slicemill.columns.pieces import concat_with_nulls
from slicemill.columns.ranges import by_partition, last_of_each, running_totals
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Int64s
from slicemill.metrics.due_times import trigger_arrivals
from slicemill.operators.changelog.retraction import version_changes
from slicemill.operators.changelog.spec import Emit
from slicemill.operators.step import StepContext
from slicemill.time import BEGINNING, EARLIEST, END
from slicemill.types import OP, Schema

_SYSTEM = (TS, SEQ, ARRIVAL)


@stored_as("emit", version=1)
@dataclass(slots=True)
class EmitState:
    """State of EMIT: pending changes of the current interval, and the sequence number of the next output row.

    Of the changes of one row, only the first change and the last change are stored.
    """

    waiting: pa.Table | None = None
    latest_ts: int = BEGINNING
    finished: bool = False
    next_seq: int = 0


class EmitStep:
    def __init__(self, operator: Emit, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, EmitState) else EmitState()
        self.latest_elsewhere = BEGINNING  # timestamp of the last row in any subtask, set before `run`
        self._every = operator.every
        self._counts = not operator.key  # True if a single subtask has all rows, and numbers them
        self._input = schema
        self._schema = with_system_columns(to_arrow(context.node.schema))

    @property
    def latest_ts(self) -> int:
        return self.state.latest_ts

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, until = self.state, complete[0]
        # Select columns without field metadata such as nullability, which may differ in later tables.
        names = [*_SYSTEM, *self._input.names]
        table = pa.table([tables[0].column(name) for name in names], names=names)
        rows = table if state.waiting is None else concat_with_nulls([state.waiting, table])
        rows = rows.combine_chunks()
        ends = self._ends(rows)
        if len(ends):
            state.latest_ts = max(state.latest_ts, int(_column(rows, TS)[-1]))
        due = np.full(len(ends), not state.finished) if until == END else ends <= until
        out = (
            self._net_changes(rows.filter(pa.array(due)), ends[due])
            if due.any()
            else self._schema.empty_table()
        )
        state.finished |= until == END
        rows, ends = rows.filter(pa.array(~due)), ends[~due]
        state.waiting = rows.take(pa.array(_sufficient_changes(rows, ends, self._input))).combine_chunks()
        held = int(ends.min()) if len(ends) and self._every is not None else END
        return out, min(until, held)

    def due(self) -> int | None:
        waiting = self.state.waiting
        if self._every is None or waiting is None or not waiting.num_rows:
            return None
        return int(self._ends(waiting).min())

    def _ends(self, rows: pa.Table) -> Int64s:
        """Return for each change the end of the EMIT interval that contains the change.

        Changes before the first row have an interval of their own.
        """
        ts = _column(rows, TS)
        if self._every is None:
            return np.full(len(ts), END)
        return np.where(ts == EARLIEST, EARLIEST + 1, (ts // self._every + 1) * self._every)

    def _net_changes(self, rows: pa.Table, ends: Int64s) -> pa.Table:
        made = self._by_values(rows, ends) if self._input.key is None else self._by_key(rows, ends)
        if self._counts:
            made = renumber(made, self.state.next_seq)
            self.state.next_seq += made.num_rows
        if self._every is None:
            made = made.drop_columns([OP])
        return made.cast(self._schema)

    def _by_key(self, rows: pa.Table, ends: Int64s) -> pa.Table:
        first, last = _first_and_last(rows, ends, self._input)
        ops = ops_of(rows)
        order = np.lexsort((first, _column(rows, SEQ)[first], ends[first]))
        first, last = first[order], last[order]
        stamped = self._stamped(rows.drop_columns([OP]), ends)
        before, after = np.where(adds(ops[first]), -1, first), np.where(adds(ops[last]), last, -1)
        causes = stamped.select(_SYSTEM).take(pa.array(first))
        names = self._input.own.names
        return version_changes(causes, stamped.select(names), before, after, names)

    def _by_values(self, rows: pa.Table, ends: Int64s) -> pa.Table:
        """Return the net inserts and deletes of a changelog without key.

        In each interval, inserts and deletes of equal rows cancel out.
        """
        left = _surviving_changes(rows, ends, self._input)
        rows, ends = rows.take(pa.array(left)), ends[left]
        codes, first = _number_rows(rows, ends, self._input.own)
        inserted = adds(ops_of(rows))[first]
        order = np.lexsort((first, inserted, ends[first]))
        counts = np.bincount(codes, minlength=len(first))[order]
        ops = np.repeat(np.where(inserted[order], INSERT, DELETE), counts)
        stamped = self._stamped(rows.drop_columns([OP]), ends)
        return with_ops(stamped.take(pa.array(np.repeat(first[order], counts))), ops)

    def _stamped(self, rows: pa.Table, ends: Int64s) -> pa.Table:
        """Set the timestamps of changes to the end of their EMIT interval."""
        stamps = np.where(ends == EARLIEST + 1, EARLIEST, ends)
        if self._every is None:
            stamps = np.full(len(ends), max(self.state.latest_ts, self.latest_elsewhere))
        rows = rows.set_column(0, TS, pa.array(stamps))
        return rows.set_column(2, ARRIVAL, pa.array(trigger_arrivals(stamps)))


def _sufficient_changes(rows: pa.Table, ends: Int64s, schema: Schema) -> Int64s:
    """Return the positions of the pending changes that suffice to compute the net changes."""
    if schema.key is None:
        return _surviving_changes(rows, ends, schema)
    first, last = _first_and_last(rows, ends, schema)
    return np.unique(np.concatenate([first, last]))


def _surviving_changes(rows: pa.Table, ends: Int64s, schema: Schema) -> Int64s:
    """Return the changes that remain after inserts and deletes of equal rows cancel out.

    An insert and a delete of equal rows in one interval cancel out. The first changes since the count of a
    row was last 0 remain, so that the choice does not depend on the borders of micro-batches.
    """
    codes, first = _number_rows(rows, ends, schema.own)
    order, grouped, _ = by_partition(codes.astype(np.int32), len(first))
    signs = np.where(adds(ops_of(rows)), np.int64(1), np.int64(-1))[order]
    nothing = np.zeros(len(first), np.int64)
    sums = running_totals(grouped, signs, nothing)
    indices, last = np.arange(len(order)), np.flatnonzero(last_of_each(grouped))
    net, cancelled = sums[last], np.maximum.accumulate(np.where(sums == 0, indices, -1))[last]
    alike = (indices > cancelled[grouped]) & (signs == np.sign(net)[grouped])
    stays = alike & (running_totals(grouped, alike, nothing) <= np.abs(net)[grouped])
    return np.sort(order[stays])


def _first_and_last(rows: pa.Table, ends: Int64s, schema: Schema) -> tuple[Int64s, Int64s]:
    assert schema.key is not None
    codes, first = _number_rows(rows, ends, Schema(tuple(c for c in schema if c.name in schema.key)))
    last = np.zeros(len(first), np.int64)
    last[codes] = np.arange(len(codes))
    return first, last


def _number_rows(rows: pa.Table, ends: Int64s, schema: Schema) -> tuple[Int64s, Int64s]:
    """Assign the same number to equal changed rows in one EMIT interval.

    Return the number of each row, and the position of the first row with each number.
    """
    found = distinct_keys([pa.array(ends), *(rows.column(name) for name in schema.names)], rows.num_rows)
    return found.codes, found.rows


def _column(table: pa.Table, name: str) -> Int64s:
    return np.asarray(numbers(table.column(name).combine_chunks()))


def emit(operator: Emit, context: StepContext) -> EmitStep:
    return EmitStep(operator, context)
