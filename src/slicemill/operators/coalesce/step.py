"""Temporal queries, by their kernels (`slicemill.operators.coalesce`).

Of those with a budget, some ways of shedding have no kernel: they are hosted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.columns.order import Numbering
from slicemill.esl.types.budget import Budget
from slicemill.esl.types.query import FrameUnit
from slicemill.operators import specs as op
from slicemill.operators.coalesce.budget_state import BudgetState
from slicemill.operators.coalesce.budgeted import BudgetedByTime, is_compiled
from slicemill.operators.coalesce.by_rows import CoalescingByRows
from slicemill.operators.coalesce.by_time import CoalescingByTime
from slicemill.operators.coalesce.coalescing import Coalescing, CoalescingState
from slicemill.operators.making import Making
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import to_arrow, with_system_columns
from slicemill.time import BEGINNING


class CoalesceStep:
    """One temporal query."""

    def __init__(self, coalescing: Coalescing, output: pa.Schema, numbering: Numbering) -> None:
        self.latest_elsewhere = BEGINNING  # the last tuple of any cell, set before each run
        self._coalescing = coalescing
        self._output = output
        self._numbering = numbering

    @property
    def state(self) -> CoalescingState:
        return self._coalescing.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, until = self._coalescing.run(tables[0], complete[0], self.latest_elsewhere)
        if table is None:
            return self._output.empty_table(), until
        return self._numbering.applied(table).cast(self._output), until

    @property
    def latest_ts(self) -> int:
        return self._coalescing.state.now

    @property
    def shed(self) -> Report | None:
        """What was dropped for lack of memory, if anything may be dropped."""
        state = self._coalescing.state
        return state.report if isinstance(state, BudgetState) else None

    def due(self) -> int | None:
        return self._coalescing.due()


def coalesce(making: Making) -> CoalesceStep | None:
    operator = making.node.operator
    if not isinstance(operator, op.Coalesce):
        return None
    if operator.budget is not None:
        return _budgeted(operator, operator.budget, making)
    state = making.state if isinstance(making.state, CoalescingState) else CoalescingState()
    kind = CoalescingByRows if operator.window.frame is FrameUnit.ROWS else CoalescingByTime
    coalescing = kind(operator, making.schemas[0], making.node.schema.names, state)
    numbering = Numbering(making.seq_bits, fans=True)
    return CoalesceStep(coalescing, with_system_columns(to_arrow(making.node.schema)), numbering)


def _budgeted(operator: op.Coalesce, budget: Budget, making: Making) -> CoalesceStep | None:
    if operator.window.frame is FrameUnit.ROWS or not is_compiled(budget):
        return None
    output = making.node.schema
    state = making.state if isinstance(making.state, BudgetState) else BudgetState()
    coalescing = BudgetedByTime(operator, making.schemas[0], output.names, output, state)
    # One memory for all partitions is one cell: its rows are counted anew.
    return CoalesceStep(coalescing, with_system_columns(to_arrow(output)), Numbering())
