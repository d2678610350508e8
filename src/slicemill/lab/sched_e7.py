"""sched-E7: which policy has the lowest ℓ2 norm of response times? (metrics-and-schedulers E7, P9, P16)

Balance response time: published up to 51 % below FCFS and 23 % below HR.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import mean_at, plot_sweep, reduction, sweep

POLICIES = ("brt", "hr", "fcfs")


def run(seed: int, scale: Scale) -> Result:
    """L2 response by policy over the loads."""
    claims: list[Claim] = []
    for load in (0.7, 0.97):
        figures = mean_at("l2 response", POLICIES, load, seed, scale)
        best = min(figures, key=lambda name: figures[name])
        claims.append(Claim(f"load {load:g}: the lowest norm", "BRT", best, best == "BRT"))
    for other, least, printed in (("fcfs", 0.2, 0.51), ("hr", 0.03, 0.23)):
        below = reduction("l2 response", "brt", other, 0.97, seed, scale)
        note = f"published: up to {printed:.0%}"
        claims.append(at_least(f"load 0.97: BRT below {other} by", below, least, note))

    return Result(tuple(claims), sweep("l2 response", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """L2 response against utilisation."""
    plot_sweep(result, path, "BRT has the lowest norm of response times")


EXPERIMENT = Experiment(
    id="sched-E7", title="The norm of response times by policy and load", run=run, plot=plot
)
