"""sched-E1: which policy has the lowest mean slowdown? (metrics-and-schedulers E1, P11-P13, P36)

Published at 70 % load: the highest normalised rate is 74 % below round robin, 51 % below SRPT and 18 % below
the highest rate; at 97 %: 75, 53 and 20 %.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, ascending, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import mean_at, plot_sweep, reduction, sweep

POLICIES = ("hnr", "hr", "srpt", "slices")


def run(seed: int, scale: Scale) -> Result:
    """Mean slowdown by policy over the loads."""
    claims: list[Claim] = []
    for load in (0.7, 0.97):
        figures = mean_at("mean slowdown", POLICIES, load, seed, scale)
        claims.append(ascending(f"order at load {load:g}: HNR, then HR, then the others", figures))
        for other, least, printed in (("slices", 0.55, 0.75), ("srpt", 0.1, 0.5), ("hr", 0.05, 0.2)):
            below = reduction("mean slowdown", "hnr", other, load, seed, scale)
            note = f"published: about {printed:.0%} on a packet trace"
            claims.append(at_least(f"load {load:g}: HNR below {other} by", below, least, note))

    return Result(tuple(claims), sweep("mean slowdown", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Mean slowdown against utilisation."""
    plot_sweep(result, path, "HNR has the lowest mean slowdown")


EXPERIMENT = Experiment(id="sched-E1", title="Mean slowdown by policy and load", run=run, plot=plot)
