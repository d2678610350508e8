"""sched-E25: how much freshness for how much response time? (metrics-and-schedulers E25, P34)

Published at 95 % load: β = 1 buys 40 % less staleness for 23 % more response time, β = 0.25 buys 20 % for
14 %.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.sched.runs import POISSON, Data, samples

BETAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """A point per β: staleness and response time relative to HR."""
    points = {
        f"β {beta:g}": [
            fmean(samples(objective, "fas", Data(LOAD), seed, scale, beta=beta))
            / fmean(samples(objective, "hr", Data(LOAD), seed, scale))
            for objective in ("staleness", "mean response")
        ]
        for beta in BETAS
    }
    whole, quarter = points["β 1"], points["β 0.25"]
    claims = (
        at_least("β 1: staleness below HR by", 1 - whole[0], 0.15, note="published: 40 %"),
        at_least("β 0.25: staleness below HR by", 1 - quarter[0], 0.02, note="published: 20 %"),
        at_most(
            "β 0.25: response time above HR by",
            quarter[1] - 1,
            0.14,
            note="published: 14 %; the knob's first quarter is cheaper here",
        ),
        at_most("β 0.25 costs less per staleness than β 1", _price(quarter), _price(whole)),
    )
    return Result(claims, {"arrivals": POISSON, "points": points})


def _price(point: list[float]) -> float:
    return (point[1] - 1) / (1 - point[0])


def plot(result: Result, path: Path) -> None:
    """Response time against staleness, a point per β."""
    points = {name: curve([at[0]], [[at[1]]]) for name, at in result.figures["points"].items()}
    draw_curves(
        path,
        points,
        title=f"What freshness costs (load {LOAD:g}; {POISSON})",
        x_label="staleness relative to HR",
        y_label="mean response time relative to HR",
    )


EXPERIMENT = Experiment(
    id="sched-E25", title="Response time against staleness for FAS(β)", run=run, plot=plot
)
