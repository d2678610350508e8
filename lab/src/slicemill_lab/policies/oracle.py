"""Policies that know which pending tuples will be results: how far from the best are mean figures? (P28)

The rate of a queue is that of its best prefix: results in it over the time it will really take (A16), which
is the first segment of the maximum-slope-segment policy. Queues without a result go by mean figures (A12).
For simulators only.
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.scheduling.policies.policy_registry import POLICIES
from slicemill_lab.policies.asked import AskedPolicy
from slicemill_lab.policies.mss import MaximumSlopeSegment
from slicemill_lab.policies.policy import SimulatedUnit


def hr_oracle(units: Sequence[SimulatedUnit]) -> MaximumSlopeSegment:
    """The highest rate, for units whose charts count results."""
    return MaximumSlopeSegment(expected=_static("hr", units))


def hnr_oracle(units: Sequence[SimulatedUnit]) -> MaximumSlopeSegment:
    """The highest normalised rate."""
    weights = tuple(1 / float(unit.segment.ideal_time) for unit in units)
    return MaximumSlopeSegment(weights, _static("hnr", units))


def _static(name: str, units: Sequence[SimulatedUnit]) -> tuple[float, ...]:
    return tuple(AskedPolicy(POLICIES[name], units).by_wait()[0].tolist())
