"""sched-E23: what does freshness cost in response time? (metrics-and-schedulers E23, P32)

Published: FAS is 23 % above the highest rate at 95 % load. Ours costs more, about half as much again: a query
with many tuples pending waits until the others are fresh.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import ascending, within
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.sched_runs import NAMES, data_mean, data_sweep, plot_sweep

POLICIES = ("hr", "fas", "slices", "fcfs")


def run(seed: int, scale: Scale) -> Result:
    """Mean response time by policy over the loads."""
    figures = {NAMES[p]: data_mean("mean response", p, 0.95, seed, scale) for p in POLICIES}
    claims = (
        ascending("order at load 0.95", {name: figures[name] for name in ("HR", "FAS", "FCFS")}),
        within(
            "load 0.95: FAS over HR",
            figures["FAS"] / figures["HR"],
            1.0,
            2.5,
            note="published: 1.23; the sign holds, the size is larger here",
        ),
    )
    return Result(claims, data_sweep("mean response", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Mean response time against utilisation."""
    plot_sweep(result, path, "Freshness costs response time")


EXPERIMENT = Experiment(
    id="sched-E23", title="Mean response time on the freshness testbed", run=run, plot=plot
)
