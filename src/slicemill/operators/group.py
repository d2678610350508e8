"""GROUP BY over all history, with compiled aggregates (`aggregates.udf.compiler`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.calls import CallAnswers, Tuples, Uda
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.keys import Keys
from slicemill.columns.order import Numbering
from slicemill.functions.vectors import Vector, from_arrow
from slicemill.operators.assembly import Assembly, AssemblyState
from slicemill.operators.specs import GroupAggregate
from slicemill.operators.step import CompiledColumns, PartitionNumbers, StepContext
from slicemill.time import BEGINNING, END


@stored_as("group", version=1)
@dataclass(slots=True)
class GroupState:
    """State of GROUP BY over all history.

    `keys` has the GROUP BY values of all groups, and `calls` the state of each aggregate call. `assembly` has
    pending rows: rows that wait for the results of other calls. `first_seqs` has the sequence number of the
    first row of each group.
    """

    keys: list[Keys] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    assembly: AssemblyState = field(default_factory=AssemblyState)
    first_seqs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    latest_ts: int = 0
    finished: bool = False


class GroupCallsStep:
    """Execution step of GROUP BY that emits a row whenever an aggregate returns a row.

    The rows that the TERMINATE part of an aggregate returns are emitted at the end of input.
    """

    def __init__(
        self, state: GroupState, operator: GroupAggregate, udas: Sequence[Uda], context: StepContext
    ) -> None:
        schema = context.schemas[0]
        self.state = state
        self.latest_elsewhere = BEGINNING  # timestamp of the last row in any subtask, set before `run`
        self.udas = udas
        self._types = [[argument.type for argument in call.arguments] for call in operator.calls]
        self._arguments = CompiledColumns([call.arguments for call in operator.calls], schema)
        keys = [item.expr for item in operator.group_by]
        self._groups = PartitionNumbers(keys, schema)
        # Without GROUP BY there is one group, even without input rows.
        self._always = not keys
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._key_names = [item.name for item in operator.group_by]
        self._names = [[column.name for column in call.columns] for call in operator.calls]
        if not state.calls:
            state.keys = [Keys()]
            state.calls = [uda.start() for uda in udas]
        # The rows that TERMINATE parts return follow all other rows of their group.
        self._numbering = Numbering(context.seq_bits, ranks=True, fans=True)
        self._assembly = Assembly(state.assembly, self._names, numbering=self._numbering)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state = self.state
        table = tables[0]
        groups = self._groups.numbers(table, state.keys[0])
        ts = table.column(TS).to_numpy()
        answers = [
            uda.run(kept, Tuples(_vectors(arguments, types), groups, ts))
            for uda, kept, arguments, types in zip(
                self.udas, state.calls, self._arguments.of(table), self._types, strict=True
            )
        ]
        state.latest_ts = max([state.latest_ts, *ts[-1:].tolist()])
        self._note_firsts(groups, table.column(SEQ).to_numpy())
        keyed = table.select([TS, SEQ, ARRIVAL])
        for name, column in zip(self._key_names, state.keys[0].values(groups), strict=True):
            keyed = keyed.append_column(name, column)
        out = self._assembly.run(keyed, answers).select(self._schema.names).cast(self._schema)
        if complete[0] == END and not state.finished:
            state.finished = True
            state.latest_ts = max(state.latest_ts, self.latest_elsewhere)
            out = pa.concat_tables([out, self._terminate_groups()])
        return out, complete[0]

    @property
    def latest_ts(self) -> int:
        return self.state.latest_ts

    def due(self) -> int | None:
        return None

    def _note_firsts(self, groups: NDArray[np.int32], seqs: NDArray[np.int64]) -> None:
        known, count = self.state.first_seqs, max(len(self.state.keys[0]), 1)
        if len(groups) and len(known) < count:
            # Groups are numbered in order of appearance.
            numbers, rows = np.unique(groups, return_index=True)
            self.state.first_seqs = np.concatenate([known, seqs[rows[numbers >= len(known)]]])

    def _terminate_groups(self) -> pa.Table:
        """Return the rows that the TERMINATE parts of aggregates return, in the order of the groups.

        Groups are ordered by their first rows. The emitted rows have the timestamp of the last input row.
        """
        state = self.state
        if not len(state.keys[0]) and not self._always:
            return self._schema.empty_table()
        results = [uda.finish(kept) for uda, kept in zip(self.udas, state.calls, strict=True)]
        count = max(len(state.keys[0]), 1)
        times = np.full(count, state.latest_ts)
        numbers = np.arange(count)
        firsts = state.first_seqs if len(state.first_seqs) else np.zeros(count, np.int64)
        system = [pa.array(values) for values in (times, firsts, np.zeros(count, np.int64))]
        rows = pa.table(system, names=[TS, SEQ, ARRIVAL])
        if self._key_names:
            values = state.keys[0].values(numbers)
            rows = pa.table([*rows.columns, *values], names=[TS, SEQ, ARRIVAL, *self._key_names])
        answers = [
            CallAnswers(
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
        return self._numbering.apply(out, 1).select(self._schema.names).cast(self._schema)


def group_calls(operator: GroupAggregate, context: StepContext) -> GroupCallsStep:
    """Return the execution step of an aggregate over all history."""
    udas = [prepare(call, context.catalog, context.rows_of) for call in operator.calls]
    state = context.state if isinstance(context.state, GroupState) else GroupState()
    return GroupCallsStep(state, operator, udas, context)


def _vectors(arrays: Sequence[pa.Array], types: Sequence[Any]) -> list[Vector]:
    return [from_arrow(array, type_) for array, type_ in zip(arrays, types, strict=True)]
