"""Execution step of UNION: sort-merge with waiting rows (M21-M25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from slicemill.columns.order import ranked, renumbered
from slicemill.columns.pieces import together
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.in_turn import Due, due_in_turn
from slicemill.operators.union.merge import merge as merged_by_time
from slicemill.operators.union.spec import Merge, input_ranks, keeps_numbers
from slicemill.storage.arrow_schema import SEQ, TS, to_arrow, with_system_columns
from slicemill.storage.codec import stored_as
from slicemill.storage.ties import with_seqs
from slicemill.time import BEGINNING


@stored_as("merge", version=1)
@dataclass(slots=True)
class MergeState:
    """Waiting rows, watermark of each input, and the next row number.

    The row number is used only if rows are numbered anew.
    """

    waiting: list[pa.Table] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)
    next_seq: int = 0


class MergeStep:
    """UNION by (timestamp, input, number), independent of run boundaries.

    Row numbers contain the input, in `ranks` bits, and the number there. Without `ranks` rows are numbered
    anew.
    """

    def __init__(self, state: MergeState, inputs: int, output: Schema, ranks: int | None) -> None:
        self.state = state
        self._ranks = ranks
        self._schema = with_system_columns(to_arrow(output))
        if not state.registers:
            state.registers = [BEGINNING] * inputs

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        state = self.state
        waited = state.waiting or [None] * len(tables)
        # Branches agree in types; column names are those of the union.
        named = [table.rename_columns(self._schema.names).cast(self._schema) for table in tables]
        if self._ranks is not None:
            named = [_of_input(table, place, self._ranks) for place, table in enumerate(named)]
        inputs = [
            new if old is None else together([old, new]) for old, new in zip(waited, named, strict=True)
        ]
        registers = [max(known, told) for known, told in zip(state.registers, complete, strict=True)]
        merged = merged_by_time(inputs, registers, in_order=True)
        state.waiting, state.registers = list(merged.waiting), list(merged.registers)
        out = merged.table
        if self._ranks is None:
            out = renumbered(out, state.next_seq)
            state.next_seq += out.num_rows
        return out, merged.enabling_ts

    def due(self) -> Due | None:
        waiting = self.state.waiting
        return due_in_turn([table.column(TS)[0].as_py() if table.num_rows else None for table in waiting])


def _of_input(table: pa.Table, place: int, ranks: int) -> pa.Table:
    """Prefix row numbers with the number of their input."""
    return with_seqs(table, ranked(table.column(SEQ).to_numpy(), place, SEQ_BITS, ranks))


def merge(operator: Merge, context: StepContext) -> MergeStep:
    state = context.state if isinstance(context.state, MergeState) else MergeState()
    node = context.node
    ranks = input_ranks(node) if keeps_numbers(operator, node, context.graph) else None
    return MergeStep(state, len(context.schemas), node.schema, ranks)
