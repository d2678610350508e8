"""shed-E4: shed-E3 with runs like those of real sensors (temporal-load-shedding TLS-E4, Fig. 8).

Synthetic streams with the published coalescing probabilities replace the sensors' data, as in shed-E2.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from slicemill_lab.claims import at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.means import WAYS, common_claims, means
from slicemill_lab.shed.runs import RATIOS, SENSORS


def run(seed: int, scale: Scale) -> Result:
    """Means over ratios by sensor, and over sensors by ratio."""
    found = means(list(SENSORS.values()), scale, seed)
    by_interval = found.over_ratios["CALS-I"]
    claims = (
        *common_claims(found),
        at_least("I declines with long runs: humidity less light", by_interval[0] - by_interval[2], 0),
    )
    return Result(claims, {"p": SENSORS, "ratios": list(RATIOS), **asdict(found)})


def plot(result: Result, path: Path) -> None:
    """Accuracy against the ratio of memory."""
    draw_curves(
        path,
        {name: curve(RATIOS, [result.figures["over_streams"][name]]) for name in WAYS},
        title="Runs as long as those of three sensors (synthetic)",
        x_label="memory / window",
        y_label="accuracy, mean over sensors",
    )


EXPERIMENT = Experiment(
    id="shed-E4",
    title="CALS, values alone, intervals alone and RAND, runs of real sensors",
    run=run,
    plot=plot,
)
