"""sched-E25: trade-off of freshness and response time (metrics-and-schedulers E25, P34).

Published at 95 % load: β = 1 has 40 % less staleness for 23 % more response time, β = 0.25 has 20 % less for
14 % more.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import POISSON, Data, samples
from slicemill_lab.spread import lower

BETAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
LOAD = 0.95
OBJECTIVES = ("staleness", "mean response")


def run(seed: int, scale: Scale) -> Result:
    """Measure staleness and response time relative to HR, for each β."""
    rate = {objective: samples(objective, "hr", Data(LOAD), seed, scale) for objective in OBJECTIVES}
    fas = {
        beta: {o: samples(o, "fas", Data(LOAD), seed, scale, beta=beta) for o in OBJECTIVES} for beta in BETAS
    }
    points = {
        f"β {beta:g}": [fmean(found[o]) / fmean(rate[o]) for o in OBJECTIVES] for beta, found in fas.items()
    }
    claims = tuple(
        claim
        for beta in (0.25, 1.0)
        for claim in (
            lower(f"β {beta:g}: staleness below HR", fas[beta]["staleness"], rate["staleness"]),
            lower(f"HR: response time below β {beta:g}", rate["mean response"], fas[beta]["mean response"]),
        )
    )
    measured = {
        f"β 0.25, {name}: FAS against HR": changes(fas[0.25][objective], rate[objective])
        for name, objective in (("staleness", "staleness"), ("response", "mean response"))
    }
    return Result(claims, {"arrivals": POISSON, "points": points}, measured)


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
