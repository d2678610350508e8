"""sched-E20: how long to look before believing? (metrics-and-schedulers E20, P21)

The length of the window in which selectivities are observed. Published: too short is noise, too long is late,
50 to 150 tuples are best.
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
