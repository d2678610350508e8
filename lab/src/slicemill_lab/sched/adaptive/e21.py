"""sched-E21: weight of the last window in adaptive statistics (metrics-and-schedulers E21, P21, A17).

Published: a low weight reacts late, a high weight is unstable, and 0.1 to 0.25 are best.
"""

from __future__ import annotations

from slicemill_lab.sched.adaptive.runs import knob
from slicemill_lab.simulator.loop import Adapting

EXPERIMENT = knob(
    21,
    "Adaptive statistics by weight of the last window",
    "weight",
    "weight of the last window",
    (0.02, 0.1, 0.175, 0.25, 1.0),
    lambda value: Adapting(alpha=value),
    best=(0.1, 0.25),
)
