"""Component-based scheduling: black boxes with mean figures, steepest first, each drained (M4, M13).

A unit is a component or a partition of one. Made for the units of a path's chain it is Chain (M7).
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.charts.charts import slope
from slicemill_lab.policies.policy import ByPriority, SimulatedUnit, static_priority


def component(units: Sequence[SimulatedUnit]) -> ByPriority:
    """Ranks units by the slope of their chart, where the user's weights are already in."""
    return static_priority([float(slope(unit.piece)) for unit in units])
