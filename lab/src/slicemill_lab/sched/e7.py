"""sched-E7: ℓ2 norm of response times of policies (metrics-and-schedulers E7, P9, P16).

Balance response time is lowest: published up to 51 % below FCFS and 23 % below HR.
"""

from __future__ import annotations

from slicemill_lab.sched.runs import Below, best_at

EXPERIMENT = best_at(
    7,
    "The norm of response times by policy and load",
    "l2 response",
    ("brt", "hr", "fcfs"),
    lowest_at=(0.7, 0.97),
    below=(Below("fcfs"), Below("hr")),
)
