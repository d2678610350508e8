"""sched-E6: ℓ2 norm of slowdowns of policies (metrics-and-schedulers E6, P9, P15).

Balance slowdown is lowest: published up to 57 % below LSF and 24 % below HNR.
"""

from __future__ import annotations

from slicemill_lab.sched.runs import Below, best_at

EXPERIMENT = best_at(
    6,
    "The norm of slowdowns by policy and load",
    "l2 slowdown",
    ("bsd", "hnr", "lsf"),
    lowest_at=(0.7, 0.97),
    below=(Below("lsf"), Below("hnr")),
)
