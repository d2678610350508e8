"""sched-E5: between the mean and the greatest slowdown (metrics-and-schedulers E5, P13-P15)

HNR is best for the mean and lets some wait for long, LSF the other way round. Published at 95 % load: balance
slowdown has a greatest slowdown 44 % below HNR's and a mean 80 % below LSF's.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import ascending, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.lab.sched_runs import SYNTHETIC, mean_at, reduction

POLICIES = ("hnr", "bsd", "lsf")
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Mean and greatest slowdown of three policies at one load."""
    mean = mean_at("mean slowdown", POLICIES, LOAD, seed, scale)
    greatest = mean_at("greatest slowdown", POLICIES, LOAD, seed, scale)
    claims = (
        ascending("mean slowdown: BSD lies between", mean),
        ascending("greatest slowdown: BSD lies between", dict(reversed(greatest.items()))),
        at_least(
            "greatest slowdown: BSD below HNR by",
            reduction("greatest slowdown", "bsd", "hnr", LOAD, seed, scale),
            0.2,
            note="published: 44 %",
        ),
        at_least(
            "mean slowdown: BSD below LSF by",
            reduction("mean slowdown", "bsd", "lsf", LOAD, seed, scale),
            0.4,
            note="published: 80 %",
        ),
    )
    return Result(claims, {"arrivals": SYNTHETIC, "mean": mean, "greatest": greatest})


def plot(result: Result, path: Path) -> None:
    """Greatest against mean slowdown, a point per policy."""
    points = {
        name: curve([result.figures["mean"][name]], [[result.figures["greatest"][name]]])
        for name in result.figures["mean"]
    }
    draw_curves(
        path,
        points,
        title=f"BSD gives up little of either ({SYNTHETIC}, load {LOAD:g})",
        x_label="mean slowdown",
        y_label="greatest slowdown",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="sched-E5", title="Mean against greatest slowdown for HNR, BSD and LSF", run=run, plot=plot
)
