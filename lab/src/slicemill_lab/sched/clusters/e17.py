"""sched-E17: optimisations of the decisions of BSD (metrics-and-schedulers E17, P18-P20).

Step by step: BSD that scans every query in every decision, with 12 logarithmic clusters, with Fagin's
algorithm to find the best cluster, and with a whole cluster processed in one decision. Published: the first
is 6470 % above BSD with free decisions, the last 5 %, and each step improves.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.sched.clusters.runs import LOAD, charged
from slicemill_lab.sched.runs import SYNTHETIC
from slicemill_lab.simulator.clusters import Clusters, apart, logarithmic
from slicemill_lab.spread import lower, seeds


def _twelve(growth: tuple[float, ...]) -> Clusters:
    return logarithmic(growth, 12)


STEPS = {
    "naive": (apart, False, False),
    "clusters": (_twelve, False, False),
    "Fagin's algorithm": (_twelve, True, False),
    "clustered processing": (_twelve, True, True),
}


def run(seed: int, scale: Scale) -> Result:
    """Measure the norm of slowdowns relative to BSD without overhead, for each step."""
    found = {
        name: [charged(one, scale, kind, pruned=pruned, together=together) for one in seeds(seed)]
        for name, (kind, pruned, together) in STEPS.items()
    }
    names = list(found)
    above = {name: fmean(values) - 1 for name, values in found.items()}
    claims: list[Claim] = [
        lower(f"{after}: below {before}", found[after], found[before]) for before, after in pairwise(names)
    ]
    claims.append(
        Claim(
            "above BSD without overhead: at first, and at last",
            "at first by more",
            f"{above['naive']:.0%}, {above['clustered processing']:.0%}",
            above["naive"] > above["clustered processing"],
            note="the first grows with the length of the run, which is overloaded",
        )
    )
    measured = {
        "naive over BSD without overhead": found["naive"],
        "clustered processing against BSD without overhead": [
            value - 1 for value in found["clustered processing"]
        ],
    }
    return Result(tuple(claims), {"arrivals": SYNTHETIC, "above": above}, measured)


def plot(result: Result, path: Path) -> None:
    """A bar for each step."""
    draw_bars(
        path,
        {name.replace(" ", "\n"): 100 * (1 + value) for name, value in result.figures["above"].items()},
        title=f"What makes BSD affordable (load {LOAD:g}; {SYNTHETIC})",
        y_label="l2 slowdown, in % of BSD without overhead",
    )


EXPERIMENT = Experiment(id="sched-E17", title="Steps that make BSD affordable", run=run, plot=plot)
