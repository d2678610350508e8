"""sched-E4: which policy has the lowest greatest slowdown? (metrics-and-schedulers E4, P8, P14)

Longest stretch first: published 80 % below HNR.
"""

from __future__ import annotations

from slicemill_lab.sched.runs import Below, best_at

EXPERIMENT = best_at(
    4,
    "Greatest slowdown by policy and load",
    "greatest slowdown",
    ("lsf", "hnr", "fcfs", "bsd"),
    lowest_at=(0.97,),
    below=tuple(Below("hnr", load, 0.6, "80 %, the load is not stated") for load in (0.7, 0.97)),
)
