"""Temporal queries, by their kernels (`slicemill.kernels.coalesce`).

Those with a budget are hosted: what they keep is small, and each tuple is a decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.esl.query import Frame
from slicemill.kernels.coalesce.by_rows import CoalescingByRows
from slicemill.kernels.coalesce.by_time import CoalescingByTime
from slicemill.kernels.coalesce.coalescing import Coalescing, CoalescingState
from slicemill.plan import operators as op
from slicemill.runtime.arrow_schema import to_arrow, with_system_columns
from slicemill.runtime.steps.making import Making


class CoalesceStep:
    """One temporal query that keeps all its tuples."""

    def __init__(self, coalescing: Coalescing, output: pa.Schema) -> None:
        self._coalescing = coalescing
        self._output = output

    @property
    def state(self) -> CoalescingState:
        return self._coalescing.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, until = self._coalescing.run(tables[0], complete[0])
        return self._output.empty_table() if table is None else table.cast(self._output), until

    def due(self) -> int | None:
        return self._coalescing.due()


def coalesce(making: Making) -> CoalesceStep | None:
    operator = making.node.operator
    if not isinstance(operator, op.Coalesce) or operator.budget is not None:
        return None
    state = making.state if isinstance(making.state, CoalescingState) else CoalescingState()
    kind = CoalescingByRows if operator.window.frame is Frame.ROWS else CoalescingByTime
    share = (making.bucket, making.buckets)
    coalescing = kind(operator, making.schemas[0], making.node.schema.names, state, share)
    return CoalesceStep(coalescing, with_system_columns(to_arrow(making.node.schema)))
