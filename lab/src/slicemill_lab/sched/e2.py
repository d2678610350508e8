"""sched-E2: what does it cost in mean response time? (metrics-and-schedulers E2, P12, P13)

The highest rate has the lowest mean response time; published: HNR is 4 % above it at 70 % load, 7 % at 97 %,
FCFS at 630 % of it at 97 %.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import at_least, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.sched.runs import Service, by_policy, plot_sweep, sweep
from slicemill_lab.spread import ordered

POLICIES = ("hr", "hnr", "srpt", "fcfs")
LOADS = (0.7, 0.97)


def run(seed: int, scale: Scale) -> Result:
    """Mean response by policy over the loads."""
    found = {load: by_policy("mean response", POLICIES, Service(load), seed, scale) for load in LOADS}
    mean = {
        load: {name: fmean(values) for name, values in policies.items()} for load, policies in found.items()
    }
    high = found[0.97]
    claims = (
        *(
            within(
                f"load {load:g}: HNR above HR by",
                mean[load]["HNR"] / mean[load]["HR"] - 1,
                0.0,
                0.15,
                note="published: 4 % at .7, 7 % at .97",
            )
            for load in LOADS
        ),
        ordered("order at load 0.97", {name: high[name] for name in ("HR", "HNR", "FCFS")}),
        at_least(
            "load 0.97: FCFS over HR", mean[0.97]["FCFS"] / mean[0.97]["HR"], 2.0, note="published: 6.3"
        ),
    )
    return Result(claims, sweep("mean response", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Mean response against utilisation."""
    plot_sweep(result, path, "HR has the lowest mean response time")


EXPERIMENT = Experiment(id="sched-E2", title="Mean response time by policy and load", run=run, plot=plot)
