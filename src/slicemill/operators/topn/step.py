"""Execution steps of top-n; kernels for insert-only input and distinct ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.changes import changes
from slicemill.columns.intervals import by_partition, last_of_each, running
from slicemill.columns.keys import Keys
from slicemill.columns.numbered import RowsByNumber, grown, touched
from slicemill.columns.ranking import order_codes, ordered_by
from slicemill.operators.context import StepContext
from slicemill.operators.partitioned import Columns, Partitioned
from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.topn.candidates import CandidatesStep
from slicemill.operators.topn.rows import top_rows
from slicemill.operators.topn.several import SeveralRowsStep
from slicemill.operators.topn.spec import TopN
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as

_SYSTEM = (TS, SEQ, ARRIVAL)


@stored_as("top.first", version=1)
@dataclass(slots=True)
class FirstRowsState:
    """Partitions, and the number of rows that each has had."""

    keys: Keys = field(default_factory=Keys)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class FirstRowsStep:
    """Top-n by time: the first rows of a partition never change."""

    def __init__(self, operator: TopN, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, FirstRowsState) else FirstRowsState()
        self._limit = operator.limit
        self._groups = Partitioned(operator.by.partition_by, schema)
        self._columns = [*_SYSTEM, *schema.names]
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._shown = operator.shown

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, state = tables[0].select(self._columns), self.state
        numbered = self._groups.numbers(table, state.keys)
        distinct, local = touched(numbered)
        state.rows = grown(state.rows, len(state.keys) or 1)
        order, partitions, _ = by_partition(local, len(distinct))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = running(partitions, np.ones(len(order), np.bool_), state.rows[distinct])
        state.rows[distinct] += np.bincount(local, minlength=len(distinct))
        if self._shown is not None:
            table = table.append_column(self._shown, pa.array(ranks))
        return table.filter(pa.array(ranks <= self._limit)).cast(self._schema), complete[0]

    def due(self) -> int | None:
        return None


@stored_as(
    "top.best", version=2, upgrade={1: lambda plain: {**plain, "best": RowsByNumber.of_all(plain["best"])}}
)
@dataclass(slots=True)
class BestRowsState:
    """Partitions, and the first row of each by partition number."""

    keys: Keys = field(default_factory=Keys)
    best: RowsByNumber = field(default_factory=RowsByNumber)


class BestRowsStep:
    """Top-1 per partition: emits an update whenever the first row changes.

    Stored and new rows are numbered in sort order. The best row so far is a running minimum by partition.
    Subtracting a constant per partition makes the minimum start again at each partition:

        partition   0   0   0   1   1          number     3   5   1   2   0
        minus       0   0   0   5   5          minimum    3   3   1  -3  -5     best: 1st, 3rd, 4th, 5th
    """

    def __init__(self, operator: TopN, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, BestRowsState) else BestRowsState()
        self._groups = Partitioned(operator.by.partition_by, schema)
        self._order = Columns([[expr for expr, _ in operator.by.order_by]], schema)
        self._falls = [falls for _, falls in operator.by.order_by]
        self._latest_first = operator.by.latest_first
        self._columns = [*_SYSTEM, *schema.names]
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._shown = operator.shown

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        new, state = _plain(tables[0], self._columns), self.state
        if not new.num_rows:
            return self._schema.empty_table(), complete[0]
        numbered = self._groups.numbers(new, state.keys)
        distinct, local = touched(numbered)
        state.best.reach(len(state.keys) or 1)
        places = state.best.places[distinct]
        known = np.flatnonzero(places >= 0)
        rows = state.best.added.behind(places[known], new).combine_chunks()
        old = len(known)
        all_numbers = np.concatenate([known.astype(np.int32), local])
        codes = [
            order_codes(column, falls)
            for column, falls in zip(self._order.of(rows)[0], self._falls, strict=True)
        ]
        arrival = np.arange(rows.num_rows)
        rank = np.empty(rows.num_rows, np.int64)
        rank[ordered_by(codes, -arrival if self._latest_first else arrival)] = arrival
        order, partitions, head = by_partition(all_numbers, len(distinct))
        lowered = rank[order] - partitions.astype(np.int64) * rows.num_rows
        best = np.ones(len(order), np.bool_)
        best[1:] = lowered[1:] < np.minimum.accumulate(lowered)[:-1]
        sorted_places = np.arange(len(order))
        # The best row before each row: the last position before the row that was a new minimum.
        latest = np.maximum.accumulate(np.where(best, sorted_places, 0))
        before = np.concatenate([np.zeros(1, np.int64), latest[:-1]])
        was = sorted_places > head
        comes = best & (order >= old)
        source = order[comes]
        arranged = np.argsort(source)
        chosen, preceding = source[arranged], order[before[comes]][arranged]
        after = rows.take(pa.array(chosen))
        made = changes(_at(after, rows.take(pa.array(preceding))), after, was[comes][arranged], _all(chosen))
        best_rows = order[latest[last_of_each(partitions)]]
        is_new = best_rows >= old
        state.best.replace(distinct[is_new], rows.take(pa.array(best_rows[is_new])))
        if self._shown is not None:
            made = made.append_column(self._shown, pa.array(np.ones(made.num_rows, np.int64)))
        return made.cast(self._schema), complete[0]

    def due(self) -> int | None:
        return None


def _plain(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Drop field metadata such as nullability, which may differ in later tables."""
    return pa.table([table.column(name) for name in names], names=list(names))


def _at(table: pa.Table, rows: pa.Table) -> pa.Table:
    """Return `rows` with the times and numbers of `table`."""
    columns = [table.column(name) if name in _SYSTEM else rows.column(name) for name in table.column_names]
    return pa.table(columns, names=table.column_names)


def _all(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.ones(len(rows), np.bool_)


def top(
    operator: TopN, context: StepContext
) -> FirstRowsStep | BestRowsStep | SeveralRowsStep | CandidatesStep | RowStep:
    if operator.appends:
        return FirstRowsStep(operator, context)
    if operator.one_each:
        return BestRowsStep(operator, context)
    if operator.several:
        return SeveralRowsStep(operator, context)
    rows = top_rows(operator, context)
    step = row_step(rows, context)
    return step if operator.retracts else CandidatesStep(operator, rows, step, context.schemas[0])
