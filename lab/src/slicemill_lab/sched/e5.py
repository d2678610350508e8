"""sched-E5: trade-off of mean and greatest slowdown (metrics-and-schedulers E5, P13-P15).

HNR has the best mean but lets some tuples wait long; LSF is the opposite. Published at 95 % load: balance
slowdown has a greatest slowdown 44 % below HNR's and a mean 80 % below LSF's.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import SYNTHETIC, Service, by_policy
from slicemill_lab.spread import lower, ordered

POLICIES = ("hnr", "bsd", "lsf")
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Mean and greatest slowdown of three policies at one load."""
    mean, greatest = (
        by_policy(objective, POLICIES, Service(LOAD), seed, scale)
        for objective in ("mean slowdown", "greatest slowdown")
    )
    claims = (
        ordered("mean slowdown: BSD lies between", mean),
        ordered("greatest slowdown: BSD lies between", dict(reversed(greatest.items()))),
        lower("greatest slowdown: BSD below HNR", greatest["BSD"], greatest["HNR"]),
        lower("mean slowdown: BSD below LSF", mean["BSD"], mean["LSF"]),
    )
    measured = {
        "greatest slowdown: BSD against HNR": changes(greatest["BSD"], greatest["HNR"]),
        "mean slowdown: BSD against LSF": changes(mean["BSD"], mean["LSF"]),
    }
    points = {name: [fmean(mean[name]), fmean(greatest[name])] for name in mean}
    return Result(claims, {"arrivals": SYNTHETIC, "points": points}, measured)


def plot(result: Result, path: Path) -> None:
    """Greatest against mean slowdown, a point per policy."""
    draw_curves(
        path,
        {name: curve([at[0]], [[at[1]]]) for name, at in result.figures["points"].items()},
        title=f"BSD gives up little of either ({SYNTHETIC}, load {LOAD:g})",
        x_label="mean slowdown",
        y_label="greatest slowdown",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="sched-E5", title="Mean against greatest slowdown for HNR, BSD and LSF", run=run, plot=plot
)
