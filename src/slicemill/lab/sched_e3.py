"""sched-E3: which policy has the lowest longest response time? (metrics-and-schedulers E3, P8, P11)

First come, first served: published 75 % below the highest rate at 97 % load.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import mean_at, plot_sweep, reduction, sweep

POLICIES = ("fcfs", "hr", "hnr", "lsf", "brt")


def run(seed: int, scale: Scale) -> Result:
    """Longest response by policy over the loads."""
    below = reduction("longest response", "fcfs", "hr", 0.97, seed, scale)
    figures = mean_at("longest response", POLICIES, 0.97, seed, scale)
    best = min(figures, key=lambda name: figures[name])
    claims = [
        Claim("load 0.97: the lowest longest response", "FCFS", best, best == "FCFS"),
        at_least("load 0.97: FCFS below HR by", below, 0.4, note="published: 75 %"),
    ]

    return Result(tuple(claims), sweep("longest response", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Longest response against utilisation."""
    plot_sweep(result, path, "FCFS has the lowest longest response time")


EXPERIMENT = Experiment(id="sched-E3", title="Longest response time by policy and load", run=run, plot=plot)
