"""shed-E6: dropping of tuples in batches (temporal-load-shedding TLS-E6, L22).

B tuples are added before memory is reduced to its size. All but the last of them know their successor, so
even CALS as printed has look-ahead within a batch.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import at_least, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import NAMES, ShedSetting, mean_accuracy

BATCHES = (1, 10, 50, 250)
WAYS = ("CALS", "CALS as printed")
P, RATIO = 0.9, 0.5


def run(seed: int, scale: Scale) -> Result:
    """Measure accuracy by batch, after memory has been reduced."""
    found = {
        name: [
            mean_accuracy(ShedSetting(NAMES[name], P, RATIO, batch=batch), scale, seed) for batch in BATCHES
        ]
        for name in WAYS
    }
    ahead, printed = found["CALS"], found["CALS as printed"]
    claims = (
        near("with look-ahead the batch hardly matters: greatest over least", max(ahead) / min(ahead), 1),
        at_least("without it, batches of 50 gain", printed[2] - printed[0], 0),
        near("and reach what look-ahead does, nearly: batches of 250 / look-ahead", printed[3] / ahead[3], 1),
    )
    return Result(claims, {"p": P, "ratio": RATIO, "batch": list(BATCHES), "accuracy": found})


def plot(result: Result, path: Path) -> None:
    """Accuracy against the batch."""
    draw_curves(
        path,
        {name: curve(BATCHES, [result.figures["accuracy"][name]]) for name in WAYS},
        title=f"A batch is a look-ahead of its own (p {P:g}, memory {RATIO:g} of the window)",
        x_label="tuples in a batch",
        y_label="accuracy",
        log_x=True,
    )


EXPERIMENT = Experiment(id="shed-E6", title="Accuracy against the size of batches", run=run, plot=plot)
