"""sched-E4: which policy has the lowest greatest slowdown? (metrics-and-schedulers E4, P8, P14)

Longest stretch first: published 80 % below HNR.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import mean_at, plot_sweep, reduction, sweep

POLICIES = ("lsf", "hnr", "fcfs", "bsd")


def run(seed: int, scale: Scale) -> Result:
    """Greatest slowdown by policy over the loads."""
    figures = mean_at("greatest slowdown", POLICIES, 0.97, seed, scale)
    best = min(figures, key=lambda name: figures[name])
    claims = [
        Claim("load 0.97: the lowest greatest slowdown", "LSF", best, best == "LSF"),
        *(
            at_least(
                f"load {load:g}: LSF below HNR by",
                reduction("greatest slowdown", "lsf", "hnr", load, seed, scale),
                0.6,
                note="published: 80 %, the load is not stated",
            )
            for load in (0.7, 0.97)
        ),
    ]

    return Result(tuple(claims), sweep("greatest slowdown", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Greatest slowdown against utilisation."""
    plot_sweep(result, path, "LSF has the lowest greatest slowdown")


EXPERIMENT = Experiment(id="sched-E4", title="Greatest slowdown by policy and load", run=run, plot=plot)
