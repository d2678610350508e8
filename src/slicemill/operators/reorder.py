"""Execution of reordering by a new timestamp: rows wait until no earlier row can arrive.

own time        1   2   3   4   5   6              SLACK 2
column          -   1   -   2   5   -
watermark 5     later rows have a column from 3 on: emit 1 and 2, 5 waits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.pieces import Slice, keep_needed
from slicemill.functions.vectors import numbers
from slicemill.metrics.due_times import trigger_arrivals
from slicemill.operators.specs import Reorder
from slicemill.operators.step import StepContext
from slicemill.time import BEGINNING, END


@stored_as("reorder", version=1)
@dataclass(slots=True)
class ReorderState:
    """Waiting rows in arrival order, with their new timestamps.

    `least` is the lowest new timestamp.
    """

    pieces: list[Slice] = field(default_factory=list)
    least: int | None = None


class ReorderStep:
    def __init__(self, operator: Reorder, context: StepContext) -> None:
        self.state = context.state if isinstance(context.state, ReorderState) else ReorderState()
        self._column, self._slack = operator.column, operator.slack_us
        self._schema = with_system_columns(to_arrow(context.node.schema))

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        until = self._watermark(complete[0])
        new = self._with_new_timestamps(tables[0])
        rows = pa.concat_tables([*(piece.table for piece in self.state.pieces), new]).combine_chunks()
        times, seqs = rows.column(TS).to_numpy(), rows.column(SEQ).to_numpy()
        ready = times < until if until != END else np.ones(len(times), np.bool_)
        chosen = np.flatnonzero(ready)
        chosen = chosen[np.lexsort((seqs[chosen], times[chosen]))]
        self.state.pieces = keep_needed(self.state.pieces, new, ~ready, exactly=True)
        self.state.least = None if ready.all() else int(times[~ready].min())
        return rows.take(pa.array(chosen)), until

    def due(self) -> int | None:
        return None if self.state.least is None else self.state.least + self._slack + 1

    def _watermark(self, complete: int) -> int:
        """Return the output watermark: input watermark minus slack."""
        return complete if complete == END else max(complete - self._slack, BEGINNING)

    def _with_new_timestamps(self, table: pa.Table) -> pa.Table:
        """Set the new timestamps of rows.

        Rows are dropped if the new timestamp is NULL or before the output watermark.
        """
        table = table.select(self._schema.names).cast(self._schema)
        column = table.column(self._column).combine_chunks()
        own, new = table.column(TS).to_numpy(), numbers(column)
        taken = column.is_valid().to_numpy(zero_copy_only=False) & (new >= own - self._slack)
        # The slack is a requested delay. Latency is therefore measured from the end of the slack.
        arrivals = trigger_arrivals(new + self._slack + 1)
        for name, values in ((TS, new), (ARRIVAL, arrivals)):
            table = table.set_column(table.column_names.index(name), name, pa.array(values))
        return table.filter(pa.array(taken))


def reorder(operator: Reorder, context: StepContext) -> ReorderStep:
    return ReorderStep(operator, context)
