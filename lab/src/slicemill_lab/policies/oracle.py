"""Oracle policies, which know which pending tuples will produce results (P28).

They measure how far policies with mean figures are from the optimum. The rate of a queue is that of its best
prefix: results in the prefix over its true processing time (A16). That is the first segment of the
maximum-slope-segment policy. Queues without a result are ranked by mean figures (A12). Only simulators can
run these policies.
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.scheduling.policies import POLICIES
from slicemill_lab.policies.asked import AskedPolicy
from slicemill_lab.policies.mss import MaximumSlopeSegment
from slicemill_lab.policies.policy import SimulatedTask


def hr_oracle(tasks: Sequence[SimulatedTask]) -> MaximumSlopeSegment:
    """Return the oracle of the highest rate, for tasks whose charts count results."""
    return MaximumSlopeSegment(expected=_static("hr", tasks))


def hnr_oracle(tasks: Sequence[SimulatedTask]) -> MaximumSlopeSegment:
    """Return the oracle of the highest normalised rate."""
    weights = tuple(1 / float(task.segment.ideal_time) for task in tasks)
    return MaximumSlopeSegment(weights, _static("hnr", tasks))


def _static(name: str, tasks: Sequence[SimulatedTask]) -> tuple[float, ...]:
    return tuple(AskedPolicy(POLICIES[name], tasks).by_wait()[0].tolist())
