"""sched-E4: greatest slowdown of policies (metrics-and-schedulers E4, P8, P14).

Longest stretch first is lowest: published 80 % below HNR, without a load. It is compared with ours at 97 %.
"""

from __future__ import annotations

from slicemill_lab.sched.runs import Below, best_at

EXPERIMENT = best_at(
    4,
    "Greatest slowdown by policy and load",
    "greatest slowdown",
    ("lsf", "hnr", "fcfs", "bsd"),
    lowest_at=(0.97,),
    below=(Below("hnr", 0.97),),
)
