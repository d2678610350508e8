"""shed-E10: weight of a split relative to lost time (temporal-load-shedding TLS-E10, L15, L22).

While a split weighs at least as much as the time of a whole run, the cheapest tuple is always an end of a
run, and the weights have no effect. With lower weights, inner tuples are dropped as well. These need the
scan, so the window has only 100 tuples.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import ShedSetting, mean_accuracy

WEIGHTS = (0.0, 0.05, 0.25, 1.0, 4.0)
PROBABILITIES = (0.5, 0.9)
WINDOW, RATIO = 100, 0.5


def run(seed: int, scale: Scale) -> Result:
    """Measure accuracy by the weight of a split; lost time has the weight 1."""
    found = {
        p: [
            mean_accuracy(
                ShedSetting("lookahead", p, RATIO, window=WINDOW, weights=(weight, 1.0)), scale, seed
            )
            for weight in WEIGHTS
        ]
        for p in PROBABILITIES
    }
    claims = (
        at_most(
            "from 1:1 on nothing changes: greatest difference",
            max(abs(line[3] - line[4]) for line in found.values()),
            0,
        ),
        at_least(
            "no lower weight is better: least lead of 1:1",
            min(line[3] - max(line[:3]) for line in found.values()),
            0,
        ),
        at_least("p = 0.9: lead of 1:1 over lost time alone", found[0.9][3] - found[0.9][0], 0),
    )
    return Result(claims, {"weights": list(WEIGHTS), "window": WINDOW, "ratio": RATIO, "accuracy": found})


def plot(result: Result, path: Path) -> None:
    """Accuracy against the weight of a split."""
    draw_curves(
        path,
        {f"p {p:g}": curve(WEIGHTS, [line]) for p, line in result.figures["accuracy"].items()},
        title="A split counts as much as a whole run, or it does not count enough",
        x_label="weight of a split / weight of lost time",
        y_label="accuracy",
    )


EXPERIMENT = Experiment(id="shed-E10", title="Weights of splits and of lost time", run=run, plot=plot)
