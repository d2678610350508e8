"""Step of GROUP BY over windows of FROM."""

from __future__ import annotations

from slicemill.operators.context import StepContext
from slicemill.operators.step import StatefulStep
from slicemill.operators.windowed_group.count_windows import count_windows
from slicemill.operators.windowed_group.living_windows import living_windows
from slicemill.operators.windowed_group.spec import RelationAggregate


def windowed_group(aggregate: RelationAggregate, context: StepContext) -> StatefulStep:
    return count_windows(aggregate, context) or living_windows(aggregate, context)
