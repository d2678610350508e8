"""Execution of UNION: sort-merge of inputs, in which rows wait for watermarks (M21-M25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.merge import with_seqs
from slicemill.columns.order import rank_seqs, renumber
from slicemill.columns.pieces import concat_with_nulls
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.functions.vectors import numbers
from slicemill.operators.alignment import Due, borders, due_in_turn
from slicemill.operators.specs import Merge, input_ranks, keeps_numbers
from slicemill.operators.step import StepContext
from slicemill.time import BEGINNING, END
from slicemill.types import Schema


@stored_as("merge", version=1)
@dataclass(slots=True)
class MergeState:
    """Waiting rows, watermark of each input, and the next sequence number.

    `next_seq` is used only if rows are renumbered.
    """

    waiting: list[pa.Table] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)
    next_seq: int = 0


class MergeStep:
    """UNION step, which emits rows in the order of (timestamp, input, sequence number).

    The order does not depend on the division of the input into micro-batches.

    A sequence number has the input in its first `ranks` bits, followed by the number in the input. Without
    `ranks`, rows are renumbered.
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
        # All branches have equal column types. The union has its own column names.
        named = [table.rename_columns(self._schema.names).cast(self._schema) for table in tables]
        if self._ranks is not None:
            named = [_of_input(table, index, self._ranks) for index, table in enumerate(named)]
        inputs = [
            new if old is None else concat_with_nulls([old, new])
            for old, new in zip(waited, named, strict=True)
        ]
        registers = [max(known, new) for known, new in zip(state.registers, complete, strict=True)]
        merged = merge_tables(inputs, registers, in_order=True)
        state.waiting, state.registers = list(merged.waiting), list(merged.registers)
        out = merged.table
        if self._ranks is None:
            out = renumber(out, state.next_seq)
            state.next_seq += out.num_rows
        return out, merged.enabling_ts

    def due(self) -> Due | None:
        waiting = self.state.waiting
        return due_in_turn([table.column(TS)[0].as_py() if table.num_rows else None for table in waiting])


def _of_input(table: pa.Table, index: int, ranks: int) -> pa.Table:
    """Prefix sequence numbers with the number of their input."""
    return with_seqs(table, rank_seqs(table.column(SEQ).to_numpy(), index, SEQ_BITS, ranks))


def merge(operator: Merge, context: StepContext) -> MergeStep:
    state = context.state if isinstance(context.state, MergeState) else MergeState()
    node = context.node
    ranks = input_ranks(node) if keeps_numbers(operator, node, context.graph) else None
    return MergeStep(state, len(context.schemas), node.schema, ranks)


# Sort-merge of ordered inputs on whole tables (M21-M25)
#
# The register of an input is its watermark: the timestamp of its last row, or a later enabling timestamp.
# τ is the lowest register. Rows at or before τ are emitted, ordered by (timestamp, input, position). Later
# rows wait:
#
#     A: 1 3 3   register 3                    out:     1 2
#     B: 2       register 2     τ = 2          waiting: A: 3 3
#
# In the reference engine (M21), a row at τ is emitted at once, even if more rows at τ may follow. The
# order of rows with equal timestamps then depends on their arrival. With `in_order`, a row also waits for
# rows that precede it by (timestamp, input), so that the result depends only on the input.


@dataclass(frozen=True, slots=True)
class MergeOutput:
    """Emitted rows, waiting rows of each input, and watermark of each input."""

    table: pa.Table
    waiting: tuple[pa.Table, ...]
    registers: tuple[int, ...]

    @property
    def enabling_ts(self) -> int:
        """Return a lower bound of the timestamps of later rows."""
        return min(self.registers)


def merge_tables(
    inputs: Sequence[pa.Table],
    registers: Sequence[int],
    time_column: str = "_ts",
    in_order: bool = False,
) -> MergeOutput:
    """Merge tables of one schema, each in timestamp order.

    Each table has waiting rows, followed by new rows. `registers` are the watermarks of the inputs: those of
    the last call, or later watermarks.
    """
    times = [_times(table, time_column) for table in inputs]
    known = [
        max(register, int(ts[-1])) if len(ts) else register
        for register, ts in zip(registers, times, strict=True)
    ]
    ready = [
        len(ts) if border == END else int(np.searchsorted(ts, border))
        for ts, border in zip(times, _borders(known, in_order), strict=True)
    ]
    parts = [table.slice(0, count) for table, count in zip(inputs, ready, strict=True)]
    waiting = tuple(table.slice(count) for table, count in zip(inputs, ready, strict=True))
    moments = [ts[:count] for ts, count in zip(times, ready, strict=True)]
    return MergeOutput(_merge_by_time(parts, moments), waiting, tuple(known))


def _times(table: pa.Table, time_column: str) -> NDArray[np.int64]:
    chunks = [numbers(chunk) for chunk in table.column(time_column).chunks]
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.zeros(0, np.int64), *chunks])


def _borders(registers: Sequence[int], in_order: bool) -> list[int]:
    """Return for each input the timestamp below which rows are emitted.

    The timestamp is END if all rows are emitted.
    """
    if in_order:
        return borders(registers)
    lowest = min(registers)
    return [lowest + (lowest < END)] * len(registers)


def _merge_by_time(parts: Sequence[pa.Table], moments: Sequence[NDArray[np.int64]]) -> pa.Table:
    table = pa.concat_tables([part.rename_columns(parts[0].column_names) for part in parts])
    ts = np.concatenate(moments)
    if np.all(ts[1:] >= ts[:-1]):
        # Rows of a single input, or of inputs that follow each other in time, need no copy.
        return table
    # A stable sort of sorted inputs is a merge by (timestamp, input, position).
    return table.take(pa.array(np.argsort(ts, kind="stable")))
