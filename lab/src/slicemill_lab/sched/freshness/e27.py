"""sched-E27: staleness under bursts (metrics-and-schedulers E27, P37).

Some of ten streams arrive in bursts of ten tuples. Published: the lead of FAS over HR grows up to five bursty
streams (40 %), and then shrinks (22 % at ten). Without bursts queues are short, and both policies are nearly
equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import Data, samples
from slicemill_lab.spread import ordered

BURSTY = (0, 2, 5, 8, 10)
LOAD = 0.95


def run(seed: int, scale: Scale) -> Result:
    """Measure FAS's staleness relative to HR's by the number of bursty streams."""
    gaps = {
        count: changes(
            *(samples("staleness", name, Data(LOAD, bursty=count), seed, scale) for name in ("fas", "hr"))
        )
        for count in BURSTY
    }
    claims = (
        ordered("FAS gains with bursts, up to five streams", {f"{n} bursty": gaps[n] for n in (5, 2, 0)}),
        ordered("and less with ten", {"5 bursty": gaps[5], "10 bursty": gaps[10]}),
    )
    measured: dict[str, Sequence[float]] = {
        "five bursty streams: FAS against HR": gaps[5],
        "ten bursty streams: FAS against HR": gaps[10],
        "bursty streams at which FAS gains most": [
            min(BURSTY, key=lambda count: gaps[count][place]) for place in range(len(gaps[5]))
        ],
    }
    figures = {
        "arrivals": "Poisson arrivals",
        "bursty": list(BURSTY),
        "ratio": [1 + fmean(gap) for gap in gaps.values()],
    }
    return Result(claims, figures, measured)


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
