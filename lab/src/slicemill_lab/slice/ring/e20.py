"""slice-E20: output and response over the length of a ring, by the cost model (state-slice E20, S35, S36)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from slicemill_lab.claims import at_most, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.analysis.ring_length import RingModel

POINTS = {
    "Sj 0.1, T_j 10 µs": (RingModel(3, 50, 10, 0.1, 1e-5, 5e-6, 2e-4), 21, 14.6),
    "Sj 0.05, T_j 10 µs": (RingModel(3, 50, 10, 0.05, 1e-5, 5e-6, 2e-4), 15, 10.4),
    "Sj 0.05, T_j 100 µs": (RingModel(3, 50, 10, 0.05, 1e-4, 5e-6, 2e-4), 47, 32.8),
}
"""Models with their best length and its response in ms."""
LENGTHS = range(1, 101)


def run(_seed: int, _scale: Scale) -> Result:
    """Compute both curves at three points."""
    figures = {
        name: {
            "speed_up": [model.speed_up(nodes) for nodes in LENGTHS],
            "response_ms": [1000 * model.latency(nodes) for nodes in LENGTHS],
        }
        for name, (model, _, _) in POINTS.items()
    }
    claims = []
    for name, (model, length, response) in POINTS.items():
        speed, latency = figures[name]["speed_up"], figures[name]["response_ms"]
        falling = latency[:length]
        rising = latency[length - 1 :]
        turns = sum(a < b for a, b in pairwise(falling)) + sum(a > b for a, b in pairwise(rising))
        claims += [
            at_most(f"{name}: lengths at which output falls", sum(a > b for a, b in pairwise(speed)), 0),
            at_most(f"{name}: lengths at which response leaves the U", turns, 0),
            within(f"{name}: best length", model.best_length(), length, length),
            within(f"{name}: response there, ms", latency[length - 1], response - 0.05, response + 0.05),
        ]
    return Result(tuple(claims), {"lengths": list(LENGTHS), "points": figures})


def plot(result: Result, path: Path) -> None:
    """Response over the length."""
    draw_curves(
        path,
        {
            name: curve(result.figures["lengths"], [point["response_ms"]])
            for name, point in result.figures["points"].items()
        },
        title="By the model, a ring has a best length",
        x_label="nodes",
        y_label="mean response [ms]",
    )


EXPERIMENT = Experiment(id="slice-E20", title="A ring's best length, by the cost model", run=run, plot=plot)
