"""GROUP BY over windows of FROM: by calls with OVER, by kernels, or by rows."""

from __future__ import annotations

from slicemill.aggregate.definition import RowCall
from slicemill.operators.context import StepContext
from slicemill.operators.row_operator import row_of_expressions
from slicemill.operators.row_step import row_step
from slicemill.operators.step import StatefulStep
from slicemill.operators.windowed_group.count_windows import count_windows
from slicemill.operators.windowed_group.living_windows import living_windows
from slicemill.operators.windowed_group.rows import group_rows
from slicemill.operators.windowed_group.spec import RelationAggregate


def windowed_group(aggregate: RelationAggregate, context: StepContext) -> StatefulStep:
    """By rows go synopses by numbers, and users' aggregates over joins or over counts of rows that slide."""
    step = count_windows(aggregate, context) or living_windows(aggregate, context)
    if step is not None:
        return step
    (schema,) = context.schemas
    calls = [
        RowCall(context.definition(call), row_of_expressions(call.arguments, schema))
        for call in aggregate.calls
    ]
    return row_step(group_rows(aggregate, calls, schema), context)
