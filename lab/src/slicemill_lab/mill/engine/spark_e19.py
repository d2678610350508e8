"""mill-spark-E19: long traffic jams on a synthetic highway, on the engine (E19, M57, X22).

The road of mill-E19, with three weeks to learn from. The following days are a stream of 16 features.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from slicemill.connectors.generators.highway import Highway
from slicemill_lab.claims import Claim, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import BFF, HVWT, LOADSTAR, RANDOM
from slicemill_lab.mill.e19 import LAGS, SEGMENTS, TRAIN_DAYS, features_of
from slicemill_lab.mill.engine.classifying import ToClassify, errors_on_engine
from slicemill_lab.plotting import curve, draw_curves

COMPARED = (RANDOM, LOADSTAR, HVWT, BFF)
SHARES: Mapping[Scale, tuple[int, ...]] = {"small": (80, 90), "full": (10, 20, 30, 40, 50, 60, 70, 80, 90)}
TEST_DAYS: Mapping[Scale, int] = {"small": 1, "full": 7}


def run(seed: int, scale: Scale) -> Result:
    """Measure errors by policy and share shed, and with all sensors observed."""
    error = errors_on_engine([road(1000 * seed, TEST_DAYS[scale])], COMPARED, SHARES[scale], seed)
    base = error.pop("all")[0]
    figures = {
        "data": "synthetic",
        "shed_percent": list(SHARES[scale]),
        "error": error,
        "error_of_all": base,
    }
    return Result(_claims(error, base), figures)


def road(seed: int, days: int) -> ToClassify:
    """Return three weeks to learn from, and the following days."""
    made = Highway(segments=SEGMENTS, seed=seed)
    values, labels, _ = features_of(made, range(TRAIN_DAYS))
    tested, truth, _ = features_of(made, range(TRAIN_DAYS, TRAIN_DAYS + days))
    return ToClassify(values, labels, tested, truth, LAGS)


def plot(result: Result, path: Path) -> None:
    """Errors against the share shed."""
    shares = result.figures["shed_percent"]
    draw_curves(
        path,
        {policy: curve(shares, [line]) for policy, line in result.figures["error"].items()},
        title="Long jams on a synthetic highway, on the engine",
        x_label="streams not looked at [%]",
        y_label="share of decisions that are wrong",
    )


EXPERIMENT = Experiment(
    id="mill-spark-E19",
    title="Traffic jams on a synthetic highway, on the engine",
    run=run,
    plot=plot,
    substrate="engine",
)


def _claims(error: Mapping[str, list[float]], base: float) -> tuple[Claim, ...]:
    means = {policy: float(np.mean(line)) for policy, line in error.items()}
    said = ", ".join(f"{policy} {100 * one:.1f} %" for policy, one in means.items())
    return (
        at_most(
            "BFF is best: its errors over the least of the others', means over the shares shed",
            means[BFF] / min(means[policy] for policy in COMPARED if policy != BFF),
            1,
            note=f"Errors: {said}; of reading all {100 * base:.1f} % (printed: 4 %). The data is synthetic.",
        ),
        at_most("HVWT errs no more than LoadStar: errors over LoadStar's", means[HVWT] / means[LOADSTAR], 1),
    )
