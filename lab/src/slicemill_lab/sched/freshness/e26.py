"""sched-E26: staleness if most tuples are results (metrics-and-schedulers E26, P32).

Selectivities are skewed towards 1 (Zipf), with equal costs and 95 % load. Published: all staleness rises with
the skew, and the lead of FAS over HR grows from 39 % to 55 %.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import ascending
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import POISSON, Data, samples, shown
from slicemill_lab.spread import lower, ordered

SKEWS = (0.0, 1.0, 2.0, 3.0)
POLICIES = ("fas", "hr")
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Staleness by skew for both policies."""
    each = {
        shown(policy): [
            samples("staleness", policy, Data(LOAD, skew=skew, cost_classes=1), seed, scale) for skew in SKEWS
        ]
        for policy in POLICIES
    }
    found = {name: [fmean(values) for values in by_skew] for name, by_skew in each.items()}
    gaps = [changes(fas, hr) for fas, hr in zip(each["FAS"], each["HR"], strict=True)]
    claims = (
        *(
            ascending(
                f"{name}: staleness rises with the skew",
                dict(zip((f"skew {skew:g}" for skew in SKEWS), values, strict=True)),
            )
            for name, values in found.items()
        ),
        lower("no skew: FAS below HR", each["FAS"][0], each["HR"][0]),
        ordered("FAS gains with the skew", {"high skew": gaps[-1], "no skew": gaps[0]}),
    )
    measured = {"no skew: FAS against HR": gaps[0], "skewed: FAS against HR": min(gaps, key=fmean)}
    return Result(claims, {"arrivals": POISSON, "skews": list(SKEWS), "staleness": found}, measured)


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
