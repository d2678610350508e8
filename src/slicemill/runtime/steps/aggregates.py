"""Aggregates by the compiled routines of `slicemill.uda`: GROUP BY over all history, and OVER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.expression import Expr
from slicemill.esl.query import WindowCall
from slicemill.esl.types import Schema
from slicemill.kernels.assembly import Assembly, AssemblyState
from slicemill.kernels.expressions import ExpressionError, compile_many
from slicemill.kernels.keys import Keys, distinct_keys
from slicemill.kernels.vectors import Vector, from_arrow
from slicemill.plan import operators as op
from slicemill.runtime.arrow_schema import ARRIVAL, TS, to_arrow, with_system_columns
from slicemill.runtime.steps.making import Making
from slicemill.runtime.steps.step import END
from slicemill.uda.run import Answers, Tuples, Uda, prepare


class Columns:
    """Expressions over new tuples, those of several calls evaluated together."""

    def __init__(self, groups: Sequence[Sequence[Expr]], schema: Schema) -> None:
        self._sizes = [len(group) for group in groups]
        self._types = [expr.type for group in groups for expr in group]
        self._compute = compile_many([expr for group in groups for expr in group], schema)

    def of(self, table: pa.Table) -> list[list[pa.Array]]:
        """The columns of each group; the first error is raised."""
        arrays = []
        for outcome in self._compute(table):
            if isinstance(outcome, ExpressionError):
                raise outcome
            arrays.append(outcome.combine_chunks())
        found: list[list[pa.Array]] = []
        for size in self._sizes:
            found.append(arrays[:size])
            arrays = arrays[size:]
        return found


class Partitioned:
    """Rows of one bucket, and the number of each row's partition."""

    def __init__(self, keys: Sequence[Expr], schema: Schema, bucket: int, buckets: int) -> None:
        self._columns = Columns([keys], schema)
        self._bucket = bucket
        self._buckets = buckets

    def mine(self, table: pa.Table) -> pa.Table:
        if self._buckets == 1:
            return table
        keys = distinct_keys(self._columns.of(table)[0], table.num_rows)
        return table.filter(pa.array(keys.buckets(self._buckets) == self._bucket))

    def numbers(self, table: pa.Table, keys: Keys) -> NDArray[np.int32]:
        columns = self._columns.of(table)[0]
        return keys.number(distinct_keys(columns, table.num_rows), columns)


@dataclass(slots=True)
class CallsState:
    """Per call its partitions' keys and the state of its routines; the rows that wait for answers."""

    keys: list[Keys] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    assembly: AssemblyState = field(default_factory=AssemblyState)
    latest_ts: int = 0
    finished: bool = False


class WindowCallsStep:
    """`agg(args) OVER (…)`, one or several calls in a query."""

    def __init__(
        self, state: CallsState, calls: Sequence[WindowCall], udas: Sequence[Uda], making: Making
    ) -> None:
        schema = making.schemas[0]
        self.state = state
        self.udas = udas
        self._types = [[argument.type for argument in call.arguments] for call in calls]
        self._arguments = Columns([call.arguments for call in calls], schema)
        self._partitions = [
            Partitioned(call.partition_by, schema, making.bucket, making.buckets) for call in calls
        ]
        if not state.calls:
            state.keys = [Keys() for _ in calls]
            state.calls = [uda.start() for uda in udas]
        self._assembly = Assembly(state.assembly, [[c.name for c in call.columns] for call in calls])
        self._schema = with_system_columns(to_arrow(making.node.schema))

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state, until = self.state, complete[0]
        # With several buckets all calls have the same partitions.
        table = self._partitions[0].mine(tables[0])
        ts = table.column(TS).to_numpy()
        answers: list[Answers] = []
        for number, arguments in enumerate(self._arguments.of(table)):
            partitions = self._partitions[number].numbers(table, state.keys[number])
            tuples = Tuples(_vectors(arguments, self._types[number]), partitions, ts)
            answers.append(self.udas[number].run(state.calls[number], tuples, until))
        out = self._assembly.run(table, answers)
        return out.select(self._schema.names).cast(self._schema), min(until, self._held_from())

    def due(self) -> int | None:
        dues = [uda.due(state) for uda, state in zip(self.udas, self.state.calls, strict=True)]
        return min((due for due in dues if due is not None), default=None)

    def _held_from(self) -> int:
        waiting, due = self.state.assembly.held_from, self.due()
        if waiting is not None:
            return waiting
        return END if due is None else due - 1


class GroupCallsStep:
    """GROUP BY over all history: a row whenever an aggregate returns, and TERMINATE's at the end of input."""

    def __init__(
        self, state: CallsState, operator: op.GroupAggregate, udas: Sequence[Uda], making: Making
    ) -> None:
        schema = making.schemas[0]
        self.state = state
        self.udas = udas
        self._types = [[argument.type for argument in call.arguments] for call in operator.calls]
        self._arguments = Columns([call.arguments for call in operator.calls], schema)
        keys = [item.expr for item in operator.group_by]
        self._groups = Partitioned(keys, schema, making.bucket, making.buckets)
        # Without GROUP BY there is one group, also over no tuple at all; one bucket answers for it.
        self._always = not keys
        self._schema = with_system_columns(to_arrow(making.node.schema))
        self._key_names = [item.name for item in operator.group_by]
        self._names = [[column.name for column in call.columns] for call in operator.calls]
        if not state.calls:
            state.keys = [Keys()]
            state.calls = [uda.start() for uda in udas]
        self._assembly = Assembly(state.assembly, self._names)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state = self.state
        table = self._groups.mine(tables[0])
        groups = self._groups.numbers(table, state.keys[0])
        ts = table.column(TS).to_numpy()
        answers = [
            uda.run(kept, Tuples(_vectors(arguments, types), groups, ts))
            for uda, kept, arguments, types in zip(
                self.udas, state.calls, self._arguments.of(table), self._types, strict=True
            )
        ]
        if len(ts):
            state.latest_ts = int(ts[-1])
        keyed = table.select([TS, ARRIVAL])
        for name, column in zip(self._key_names, state.keys[0].values(groups), strict=True):
            keyed = keyed.append_column(name, column)
        out = self._assembly.run(keyed, answers).select(self._schema.names).cast(self._schema)
        if complete[0] == END and not state.finished:
            state.finished = True
            out = pa.concat_tables([out, self._terminated()])
        return out, complete[0]

    def due(self) -> int | None:
        return None

    def _terminated(self) -> pa.Table:
        """The groups' last words, in order of first appearance, at the time of the last tuple."""
        state = self.state
        if not len(state.keys[0]) and not self._always:
            return self._schema.empty_table()
        results = [uda.finish(kept) for uda, kept in zip(self.udas, state.calls, strict=True)]
        count = max(len(state.keys[0]), 1)
        times = np.full(count, state.latest_ts)
        numbers = np.arange(count)
        rows = pa.table({TS: pa.array(times), ARRIVAL: pa.array(np.zeros(count, np.int64))})
        if self._key_names:
            values = state.keys[0].values(numbers)
            rows = pa.table([*rows.columns, *values], names=[TS, ARRIVAL, *self._key_names])
        answers = [
            Answers(
                result.groups,
                np.full(len(result.groups), state.latest_ts),
                result.columns,
                np.zeros(len(result.groups), np.bool_),
                count,
                count,
            )
            for result in results
        ]
        out = Assembly(AssemblyState(), self._names).run(rows, answers)
        return out.select(self._schema.names).cast(self._schema)


def warm(making: Making) -> None:
    """Compile a node's aggregates here, once, rather than in every worker while tuples wait."""
    for maker in (window_calls, group_calls):
        step = maker(making)
        if step is not None:
            for uda in step.udas:
                uda.warm()


def window_calls(making: Making) -> WindowCallsStep | None:
    """The step of a window aggregate in which a user's own is called."""
    operator = making.node.operator
    if not isinstance(operator, op.WindowAggregate) or not any(
        any(making.catalog.aggregates(call.name)) for call in operator.calls
    ):
        return None
    udas = [prepare(call, making.catalog, making.translator.rows_of) for call in operator.calls]
    state = making.state if isinstance(making.state, CallsState) else CallsState()
    return WindowCallsStep(state, operator.calls, udas, making)


def group_calls(making: Making) -> GroupCallsStep | None:
    """The step of an aggregate over all history."""
    operator = making.node.operator
    if not isinstance(operator, op.GroupAggregate):
        return None
    udas = [prepare(call, making.catalog, making.translator.rows_of) for call in operator.calls]
    state = making.state if isinstance(making.state, CallsState) else CallsState()
    return GroupCallsStep(state, operator, udas, making)


def _vectors(arrays: Sequence[pa.Array], types: Sequence[Any]) -> list[Vector]:
    return [from_arrow(array, type_) for array, type_ in zip(arrays, types, strict=True)]
