"""shed-E5: value of look-ahead by one tuple (temporal-load-shedding TLS-E5, L21).

When the end of a tuple becomes known, so does the value of the next tuple. If the next tuple continues the
run, the tuple is an inner one; otherwise it is an end of the run, which may be cut.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, at_least, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import PROBABILITIES, RATIOS, table

PROTOTYPE = (0.335, 0.459, 0.587, 0.748, 0.898)
"""Without look-ahead at p = 0.9, by ratio."""


def run(seed: int, scale: Scale) -> Result:
    """Measure accuracy with and without look-ahead."""
    found = {
        way: table(name, PROBABILITIES, scale, seed)
        for way, name in (("look-ahead", "CALS"), ("none", "CALS as printed"))
    }
    least = min(
        a - b for p in PROBABILITIES for a, b in zip(found["look-ahead"][p], found["none"][p], strict=True)
    )
    claims = (
        at_least("it helps in every cell: least difference", least, 0),
        ascending(
            "ratio 0.5: it helps most where runs are long: with / without",
            {f"p {p:g}": found["look-ahead"][p][0] / found["none"][p][0] for p in (0.1, 0.9)},
        ),
        near(
            "p = 0.9 without it, against the prototype: mean over the ratios, over its",
            sum(found["none"][0.9]) / sum(PROTOTYPE),
            1,
        ),
    )
    return Result(claims, {"ratios": list(RATIOS), "accuracy": found})


def plot(result: Result, path: Path) -> None:
    """Accuracy against the ratio of memory."""
    draw_curves(
        path,
        {
            f"{way}, p {p:g}": curve(RATIOS, [result.figures["accuracy"][way][p]])
            for way in ("look-ahead", "none")
            for p in (0.5, 0.9)
        },
        title="Without look-ahead a run that grows is cut at its tip again and again",
        x_label="memory / window",
        y_label="accuracy",
    )


EXPERIMENT = Experiment(id="shed-E5", title="CALS with and without look-ahead", run=run, plot=plot)
