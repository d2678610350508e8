"""sched-E27: bursts (metrics-and-schedulers E27, P37)

Of ten streams some arrive in bursts of ten tuples. Published: FAS gains on HR until five are bursty (40 %
below), then less (22 % at ten). Without bursts queues are short, and both do nearly the same.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.sched.runs import Data, samples

BURSTY = (0, 2, 5, 8, 10)
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """FAS's staleness over HR's by the number of bursty streams."""
    ratios = [
        fmean(samples("staleness", "fas", Data(LOAD, bursty=count), seed, scale))
        / fmean(samples("staleness", "hr", Data(LOAD, bursty=count), seed, scale))
        for count in BURSTY
    ]
    claims = (
        at_least(
            "no bursts: FAS over HR", ratios[0], 0.85, note="with short queues there is little to choose"
        ),
        at_most("five bursty streams: FAS over HR", ratios[2], 0.85, note="published: 0.60"),
        at_most("ten bursty streams: FAS over HR", ratios[-1], 0.9, note="published: 0.78"),
        at_most(
            "half the streams bursty gain most of what bursts can gain: ratio at five less the least",
            ratios[2] - min(ratios),
            0.06,
            note="published: the least is at five; here the curve is flat from five on",
        ),
    )
    return Result(claims, {"arrivals": "Poisson arrivals", "bursty": list(BURSTY), "ratio": ratios})


def plot(result: Result, path: Path) -> None:
    """The ratio against the number of bursty streams."""
    draw_curves(
        path,
        {"FAS / HR": curve(BURSTY, [result.figures["ratio"]])},
        title=f"Bursts are where freshness can be gained (load {LOAD:g}; Poisson arrivals)",
        x_label="bursty streams of ten",
        y_label="staleness of FAS over that of HR",
    )


EXPERIMENT = Experiment(id="sched-E27", title="Staleness by number of bursty streams", run=run, plot=plot)
