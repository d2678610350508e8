"""Built-in aggregates with OVER, by their kernels (`slicemill.operators.over`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.aggregate.functions import has_kernel
from slicemill.operators.making import Making
from slicemill.operators.over.calls import WindowCalls, WindowState
from slicemill.operators.over.spec import WindowAggregate
from slicemill.storage.arrow_schema import to_arrow, with_system_columns


class WindowsStep:
    """One window aggregate whose calls are all built in."""

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


def builtin_windows(making: Making) -> WindowsStep | None:
    """The step of a window aggregate, unless a call is of a user's own, or has values without a kernel."""
    operator = making.node.operator
    if not isinstance(operator, WindowAggregate):
        return None
    for call in operator.calls:
        if any(making.catalog.aggregates(call.name)) or not has_kernel(call):
            return None
    state = making.state if isinstance(making.state, WindowState) else None
    calls = WindowCalls(operator.calls, making.schemas[0], state, making.seq_bits)
    return WindowsStep(calls, with_system_columns(to_arrow(making.node.schema)))
