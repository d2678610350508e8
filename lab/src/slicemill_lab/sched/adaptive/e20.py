"""sched-E20: window length of adaptive statistics (metrics-and-schedulers E20, P21).

The window in which selectivities are observed varies. Published: short windows are noisy, long windows react
late, and 50 to 150 tuples are best.
"""

from __future__ import annotations

from slicemill_lab.sched.adaptive.runs import knob
from slicemill_lab.simulator.loop import Adapting

EXPERIMENT = knob(
    20,
    "Adaptive statistics by length of the window",
    "window",
    "window [tuples]",
    (10, 50, 100, 150, 1000),
    lambda value: Adapting(window=int(value)),
    best=(50, 150),
)
