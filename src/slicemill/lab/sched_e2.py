"""sched-E2: what does it cost in mean response time? (metrics-and-schedulers E2, P12, P13)

The highest rate has the lowest mean response time; published: HNR is 4 % above it at 70 % load, 7 % at 97 %,
FCFS at 630 % of it at 97 %.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import ascending, at_least, within
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import mean_at, plot_sweep, reduction, sweep

POLICIES = ("hr", "hnr", "srpt", "fcfs")


def run(seed: int, scale: Scale) -> Result:
    """Mean response by policy over the loads."""
    claims = [
        within(
            f"load {load:g}: HNR above HR by",
            -reduction("mean response", "hnr", "hr", load, seed, scale),
            0.0,
            0.15,
            note="published: 4 % at .7, 7 % at .97",
        )
        for load in (0.7, 0.97)
    ]
    figures = mean_at("mean response", POLICIES, 0.97, seed, scale)
    claims.append(ascending("order at load 0.97", {name: figures[name] for name in ("HR", "HNR", "FCFS")}))
    claims.append(
        at_least("load 0.97: FCFS over HR", figures["FCFS"] / figures["HR"], 2.0, note="published: 6.3")
    )

    return Result(tuple(claims), sweep("mean response", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Mean response against utilisation."""
    plot_sweep(result, path, "HR has the lowest mean response time")


EXPERIMENT = Experiment(id="sched-E2", title="Mean response time by policy and load", run=run, plot=plot)
