"""Component-based scheduling: components with mean figures, steepest first, each drained (M4, M13).

A task is a component or a partition of one. Applied to the tasks of a path's chain, the policy is Chain (M7).
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.charts import slope
from slicemill_lab.policies.policy import ByPriority, SimulatedTask, static_priority


def component(tasks: Sequence[SimulatedTask]) -> ByPriority:
    """Rank tasks by the slope of their chart, which already includes the user's weights."""
    return static_priority([float(slope(task.piece)) for task in tasks])
