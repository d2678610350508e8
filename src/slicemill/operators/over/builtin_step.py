"""Step for built-in aggregates with OVER, evaluated by kernels (`slicemill.operators.over`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.operators.context import StepContext
from slicemill.operators.over.calls import WindowCalls, WindowState
from slicemill.operators.over.spec import WindowAggregate
from slicemill.storage.arrow_schema import to_arrow, with_system_columns


class WindowsStep:
    """A window aggregate whose calls are all built-ins."""

    def __init__(self, calls: WindowCalls, output: pa.Schema) -> None:
        self._calls = calls
        self._output = output

    @property
    def state(self) -> WindowState:
        return self._calls.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, until = self._calls.run(tables[0], complete[0])
        return table.cast(self._output), until

    def due(self) -> int | None:
        return self._calls.due()


def builtin_windows(operator: WindowAggregate, context: StepContext) -> WindowsStep:
    state = context.state if isinstance(context.state, WindowState) else None
    calls = WindowCalls(operator.calls, context.schemas[0], state, context.seq_bits)
    return WindowsStep(calls, with_system_columns(to_arrow(context.node.schema)))
