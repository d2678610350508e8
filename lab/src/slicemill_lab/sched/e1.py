"""sched-E1: mean slowdown of policies (metrics-and-schedulers E1, P11-P13, P36).

Published at 70 % load: the highest normalised rate is 74 % below round robin, 51 % below SRPT and 18 % below
the highest rate. At 97 %: 75, 53 and 20 %.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import Service, by_policy, plot_sweep, sweep
from slicemill_lab.spread import lower, ordered

POLICIES = ("hnr", "hr", "srpt", "slices")
LOADS = (0.7, 0.97)


def run(seed: int, scale: Scale) -> Result:
    """Mean slowdown by policy over the loads."""
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    for load in LOADS:
        found = by_policy("mean slowdown", POLICIES, Service(load), seed, scale)
        claims.append(ordered(f"order at load {load:g}: HNR, then HR, then the others", found))
        for other in ("RR", "SRPT", "HR"):
            claims.append(lower(f"load {load:g}: HNR below {other}", found["HNR"], found[other]))
            measured[f"load {load:g}: HNR against {other}"] = changes(found["HNR"], found[other])
    return Result(tuple(claims), sweep("mean slowdown", POLICIES, seed, scale), measured)


def plot(result: Result, path: Path) -> None:
    """Mean slowdown against utilisation."""
    plot_sweep(result, path, "HNR has the lowest mean slowdown")


EXPERIMENT = Experiment(id="sched-E1", title="Mean slowdown by policy and load", run=run, plot=plot)
