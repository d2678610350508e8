"""UNION: a sort-merge that waits for what may still come before (M21-M25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from slicemill.columns.order import renumbered
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.in_turn import Due, due_in_turn
from slicemill.operators.union.merge import merge as merged_by_time
from slicemill.operators.union.spec import Merge
from slicemill.storage.arrow_schema import TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as
from slicemill.time import BEGINNING


@stored_as("merge", version=1)
@dataclass(slots=True)
class MergeState:
    """Rows that wait for earlier ones of other inputs, how far each input is known, and the next number."""

    waiting: list[pa.Table] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)
    next_seq: int = 0


class MergeStep:
    """UNION: by (timestamp, input, number), whatever the borders between runs; rows get new numbers."""

    def __init__(self, state: MergeState, inputs: int, output: Schema) -> None:
        self.state = state
        self._schema = with_system_columns(to_arrow(output))
        if not state.registers:
            state.registers = [BEGINNING] * inputs

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state = self.state
        waited = state.waiting or [None] * len(tables)
        # Branches agree in types; the names are the union's.
        named = [table.rename_columns(self._schema.names).cast(self._schema) for table in tables]
        inputs = [
            new if old is None else pa.concat_tables([old, new])
            for old, new in zip(waited, named, strict=True)
        ]
        registers = [max(known, told) for known, told in zip(state.registers, complete, strict=True)]
        merged = merged_by_time(inputs, registers, in_order=True)
        state.waiting, state.registers = list(merged.waiting), list(merged.registers)
        out = renumbered(merged.table, state.next_seq)
        state.next_seq += out.num_rows
        return out, merged.enabling_ts

    def due(self) -> Due | None:
        waiting = self.state.waiting
        return due_in_turn([table.column(TS)[0].as_py() if table.num_rows else None for table in waiting])


def merge(_: Merge, context: StepContext) -> MergeStep:
    state = context.state if isinstance(context.state, MergeState) else MergeState()
    return MergeStep(state, len(context.schemas), context.node.schema)
