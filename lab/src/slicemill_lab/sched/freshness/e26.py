"""sched-E26: when most tuples are results (metrics-and-schedulers E26, P32)

Selectivities skewed towards 1 (Zipf), equal costs, 95 % load. Published: all staleness rises with the skew,
and FAS gains on HR, from 39 % below it to 55 %.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.sched.runs import POISSON, Data, samples, shown

SKEWS = (0.0, 1.0, 2.0, 3.0)
POLICIES = ("fas", "hr")
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Staleness by skew for both policies."""
    found = {
        shown(policy): [
            fmean(samples("staleness", policy, Data(LOAD, skew=skew, cost_classes=1), seed, scale))
            for skew in SKEWS
        ]
        for policy in POLICIES
    }
    gaps = [1 - fas / hr for fas, hr in zip(found["FAS"], found["HR"], strict=True)]
    claims = (
        *(
            ascending(
                f"{name}: staleness rises with the skew",
                dict(zip((f"skew {skew:g}" for skew in SKEWS), values, strict=True)),
            )
            for name, values in found.items()
        ),
        at_least("no skew: FAS below HR by", gaps[0], 0.15, note="published: 39 %"),
        at_least("high skew: FAS below HR by", gaps[-1], 0.35, note="published: up to 55 %"),
    )
    return Result(claims, {"arrivals": POISSON, "skews": list(SKEWS), "staleness": found})


def plot(result: Result, path: Path) -> None:
    """Staleness against skew."""
    draw_curves(
        path,
        {name: curve(SKEWS, [values]) for name, values in result.figures["staleness"].items()},
        title=f"FAS gains where most tuples are results (load {LOAD:g}; {POISSON})",
        x_label="Zipf parameter of the selectivities",
        y_label="staleness",
    )


EXPERIMENT = Experiment(id="sched-E26", title="Staleness by skew of the selectivities", run=run, plot=plot)
