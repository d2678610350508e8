"""sched-E23: response time under freshness-aware scheduling (metrics-and-schedulers E23, P32).

Published: FAS is 23 % above the highest rate at 95 % load, because a query with many pending tuples waits
until the other queries are fresh.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import DATA_LOADS, POISSON, Data, by_policy, plot_sweep, sweep
from slicemill_lab.spread import ordered

POLICIES = ("hr", "fas", "slices", "fcfs")


def run(seed: int, scale: Scale) -> Result:
    """Mean response time by policy over the loads."""
    found = by_policy("mean response", POLICIES, Data(0.95), seed, scale)
    claims = (ordered("order at load 0.95", {name: found[name] for name in ("HR", "FAS", "FCFS")}),)
    return Result(
        claims,
        sweep("mean response", POLICIES, seed, scale, at=Data, loads=DATA_LOADS, arrivals=POISSON),
        {"load 0.95: FAS against HR": changes(found["FAS"], found["HR"])},
    )


def plot(result: Result, path: Path) -> None:
    """Mean response time against utilisation."""
    plot_sweep(result, path, "Freshness costs response time")


EXPERIMENT = Experiment(
    id="sched-E23", title="Mean response time on the freshness testbed", run=run, plot=plot
)
