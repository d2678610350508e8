"""Component-based scheduling: components with mean figures, steepest first, each drained (M4, M13).

A unit is a component or a partition of one. Applied to the units of a path's chain, the policy is Chain (M7).
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.charts import slope
from slicemill_lab.policies.policy import ByPriority, SimulatedUnit, static_priority


def component(units: Sequence[SimulatedUnit]) -> ByPriority:
    """Rank units by the slope of their chart, which already includes the user's weights."""
    return static_priority([float(slope(unit.piece)) for unit in units])
