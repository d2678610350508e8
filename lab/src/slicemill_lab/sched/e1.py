"""sched-E1: which policy has the lowest mean slowdown? (metrics-and-schedulers E1, P11-P13, P36)

Published at 70 % load: the highest normalised rate is 74 % below round robin, 51 % below SRPT and 18 % below
the highest rate; at 97 %: 75, 53 and 20 %.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.sched.runs import Service, by_policy, plot_sweep, sweep
from slicemill_lab.spread import lower, ordered

POLICIES = ("hnr", "hr", "srpt", "slices")
LEAST = {"RR": 0.55, "SRPT": 0.1, "HR": 0.05}
PUBLISHED = {
    0.7: {"RR": "74 %", "SRPT": "51 %", "HR": "18 %"},
    0.97: {"RR": "75 %", "SRPT": "53 %", "HR": "20 %"},
}


def run(seed: int, scale: Scale) -> Result:
    """Mean slowdown by policy over the loads."""
    claims: list[Claim] = []
    for load, published in PUBLISHED.items():
        found = by_policy("mean slowdown", POLICIES, Service(load), seed, scale)
        claims.append(ordered(f"order at load {load:g}: HNR, then HR, then the others", found))
        claims += [
            lower(
                f"load {load:g}: HNR below {other}",
                found["HNR"],
                found[other],
                least=LEAST[other],
                published=printed,
            )
            for other, printed in published.items()
        ]
    return Result(tuple(claims), sweep("mean slowdown", POLICIES, seed, scale))


def plot(result: Result, path: Path) -> None:
    """Mean slowdown against utilisation."""
    plot_sweep(result, path, "HNR has the lowest mean slowdown")


EXPERIMENT = Experiment(id="sched-E1", title="Mean slowdown by policy and load", run=run, plot=plot)
