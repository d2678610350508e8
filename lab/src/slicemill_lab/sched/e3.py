"""sched-E3: longest response time of policies (metrics-and-schedulers E3, P8, P11).

First come, first served is lowest: published 75 % below the highest rate at 97 % load.
"""

from __future__ import annotations

from slicemill_lab.sched.runs import Below, best_at

EXPERIMENT = best_at(
    3,
    "Longest response time by policy and load",
    "longest response",
    ("fcfs", "hr", "hnr", "lsf", "brt"),
    lowest_at=(0.97,),
    below=(Below("hr", 0.97),),
)
