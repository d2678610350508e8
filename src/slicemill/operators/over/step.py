"""Step of aggregates with OVER.

Kernels evaluate built-ins. Compiled routines are used if a user-defined aggregate is called.
"""

from __future__ import annotations

from slicemill.aggregate.functions import has_kernel
from slicemill.operators.context import StepContext
from slicemill.operators.over.builtin_step import WindowsStep, builtin_windows
from slicemill.operators.over.compiled_step import WindowCallsStep
from slicemill.operators.over.spec import WindowAggregate, returns_many


def over(operator: WindowAggregate, context: StepContext) -> WindowCallsStep | WindowsStep:
    users = returns_many(operator.calls, context.catalog)
    if users or not all(has_kernel(call) for call in operator.calls):
        return WindowCallsStep(context, operator)
    return builtin_windows(operator, context)
