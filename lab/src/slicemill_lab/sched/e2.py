"""sched-E2: mean response time of policies (metrics-and-schedulers E2, P12, P13).

The highest rate has the lowest mean response time. Published: HNR is 4 % above it at 70 % load and 7 % at 97
%; FCFS is at 630 % of it at 97 %.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.published.figure import changes, ratios
from slicemill_lab.sched.runs import Service, by_policy, plot_sweep, sweep
from slicemill_lab.spread import ordered

POLICIES = ("hr", "hnr", "srpt", "fcfs")
LOADS = (0.7, 0.97)


def run(seed: int, scale: Scale) -> Result:
    """Mean response by policy over the loads."""
    found = {load: by_policy("mean response", POLICIES, Service(load), seed, scale) for load in LOADS}
    claims = tuple(
        ordered(f"order at load {load:g}", {name: policies[name] for name in ("HR", "HNR", "FCFS")})
        for load, policies in found.items()
    )
    measured = {
        f"load {load:g}: HNR against HR": changes(policies["HNR"], policies["HR"])
        for load, policies in found.items()
    }
    measured["load 0.97: FCFS over HR"] = ratios(found[0.97]["FCFS"], found[0.97]["HR"])
    return Result(claims, sweep("mean response", POLICIES, seed, scale), measured)


def plot(result: Result, path: Path) -> None:
    """Mean response against utilisation."""
    plot_sweep(result, path, "HR has the lowest mean response time")


EXPERIMENT = Experiment(id="sched-E2", title="Mean response time by policy and load", run=run, plot=plot)
