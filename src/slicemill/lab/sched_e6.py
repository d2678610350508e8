"""sched-E6: which policy has the lowest ℓ2 norm of slowdowns? (metrics-and-schedulers E6, P9, P15)

Balance slowdown: published up to 57 % below LSF and 24 % below HNR.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import mean_at, plot_sweep, reduction, sweep

POLICIES = ("bsd", "hnr", "lsf")


def run(seed: int, scale: Scale) -> Result:
    """L2 slowdown by policy over the loads."""
    claims: list[Claim] = []
    for load in (0.7, 0.97):
        figures = mean_at("l2 slowdown", POLICIES, load, seed, scale)
        best = min(figures, key=lambda name: figures[name])
        claims.append(Claim(f"load {load:g}: the lowest norm", "BSD", best, best == "BSD"))
    for other, least, printed in (("lsf", 0.2, 0.57), ("hnr", 0.05, 0.24)):
        below = reduction("l2 slowdown", "bsd", other, 0.97, seed, scale)
        note = f"published: up to {printed:.0%}"
        claims.append(at_least(f"load 0.97: BSD below {other} by", below, least, note))

    return Result(tuple(claims), sweep("l2 slowdown", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """L2 slowdown against utilisation."""
    plot_sweep(result, path, "BSD has the lowest norm of slowdowns")


EXPERIMENT = Experiment(id="sched-E6", title="The norm of slowdowns by policy and load", run=run, plot=plot)
