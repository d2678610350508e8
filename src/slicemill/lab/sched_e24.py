"""sched-E24: from freshness to response time by one knob (metrics-and-schedulers E24, P34)

FAS(β) counts the pending tuples as N^β. As β falls, response times fall and staleness rises; FAS(0) is HR.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill.lab.claims import ascending, within
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.lab.sched_runs import POISSON, Data, samples

BETAS = (0.0, 0.25, 0.5, 1.0)
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Response time and staleness by β at one load, and those of HR."""
    found = {
        objective: [fmean(samples(objective, "fas", Data(LOAD), seed, scale, beta=beta)) for beta in BETAS]
        for objective in ("mean response", "staleness")
    }
    rate = {objective: fmean(samples(objective, "hr", Data(LOAD), seed, scale)) for objective in found}
    response = dict(zip((f"β {beta:g}" for beta in BETAS), found["mean response"], strict=True))
    stale = dict(zip((f"β {beta:g}" for beta in BETAS), found["staleness"], strict=True))
    claims = (
        ascending("response time rises with β", response),
        ascending("staleness falls with β", dict(reversed(stale.items()))),
        *(
            within(f"{objective}: FAS(0) over HR", found[objective][0] / rate[objective], 0.97, 1.03)
            for objective in found
        ),
    )
    return Result(claims, {"arrivals": POISSON, "betas": list(BETAS), "fas": found, "hr": rate})


def plot(result: Result, path: Path) -> None:
    """Both figures, relative to HR, against β."""
    draw_curves(
        path,
        {
            objective: curve(BETAS, [[value / result.figures["hr"][objective] for value in values]])
            for objective, values in result.figures["fas"].items()
        },
        title=f"One knob between response time and freshness (load {LOAD:g}; {POISSON})",
        x_label="β",
        y_label="relative to HR",
    )


EXPERIMENT = Experiment(
    id="sched-E24", title="FAS(β) between response time and freshness", run=run, plot=plot
)
