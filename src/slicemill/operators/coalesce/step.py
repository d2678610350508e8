"""Step of temporal queries, by kernels (`slicemill.operators.coalesce`).

Some shedding methods have no kernel. Queries with these are evaluated row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from slicemill.columns.order import Numbering
from slicemill.esl.types.query import FrameUnit
from slicemill.operators.coalesce.budget_state import BudgetState
from slicemill.operators.coalesce.budgeted import BudgetedByTime
from slicemill.operators.coalesce.by_rows import CoalescingByRows
from slicemill.operators.coalesce.by_time import CoalescingByTime
from slicemill.operators.coalesce.coalescing import Coalescing, CoalescingState
from slicemill.operators.coalesce.late import CoalescingWithLate
from slicemill.operators.coalesce.rows import shedding_rows
from slicemill.operators.coalesce.spec import Coalesce
from slicemill.operators.context import StepContext
from slicemill.operators.row_step import RowStep, row_step
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import to_arrow, with_system_columns
from slicemill.time import BEGINNING


class CoalesceStep:
    """Coalescing of one temporal query."""

    def __init__(self, coalescing: Coalescing, output: pa.Schema, numbering: Numbering) -> None:
        self.latest_elsewhere = BEGINNING  # timestamp of the last tuple of all cells, set before each run
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

    def sheds(self, node_id: str) -> Mapping[str, Report]:
        """Return the report of dropped tuples, if there is a budget."""
        state = self._coalescing.state
        return {node_id: state.report} if isinstance(state, BudgetState) else {}

    def due(self) -> int | None:
        return self._coalescing.due()


def _kind_of(operator: Coalesce) -> type[Coalescing]:
    if operator.late is not None:
        return CoalescingWithLate
    return CoalescingByRows if operator.window.frame is FrameUnit.ROWS else CoalescingByTime


def coalesce(operator: Coalesce, context: StepContext) -> CoalesceStep | RowStep:
    budget = operator.budget
    if budget is None:
        state = context.state if isinstance(context.state, CoalescingState) else CoalescingState()
        coalescing = _kind_of(operator)(operator, context.schemas[0], context.node.schema.names, state)
        numbering = Numbering(context.seq_bits, fans=True)
        return CoalesceStep(coalescing, with_system_columns(to_arrow(context.node.schema)), numbering)
    output = context.node.schema
    if operator.window.frame is FrameUnit.ROWS or not budget.compiled:
        return row_step(shedding_rows(operator, budget, context.schemas[0], output), context)
    known = context.state if isinstance(context.state, BudgetState) else BudgetState()
    budgeted = BudgetedByTime(operator, context.schemas[0], output.names, output, known)
    # A memory shared by all partitions implies a single cell, so rows are renumbered.
    return CoalesceStep(budgeted, with_system_columns(to_arrow(output)), Numbering())
