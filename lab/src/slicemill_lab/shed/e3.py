"""shed-E3: contribution of both parts of the cost, synthetic (temporal-load-shedding TLS-E3, Fig. 7).

CALS counts extra results and lost time; CALS-V counts extra results only, CALS-I lost time only.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from slicemill.shedding.methods import TieBreak
from slicemill_lab.claims import ascending, at_least, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.means import WAYS, common_claims, means
from slicemill_lab.shed.runs import PROBABILITIES, RATIOS, ShedSetting, mean, mean_accuracy


def run(seed: int, scale: Scale) -> Result:
    """Measure means over ratios by probability, and over probabilities by ratio."""
    found = means(PROBABILITIES, scale, seed)
    by_value = found.over_ratios["CALS-V"]
    by_interval = dict(zip(PROBABILITIES, found.over_ratios["CALS-I"], strict=True))
    oldest = [
        mean(
            [
                mean_accuracy(ShedSetting("value", p, ratio, ties=TieBreak.OLDEST), scale, seed)
                for ratio in RATIOS[::2]
            ]
        )
        for p in PROBABILITIES[::2]
    ]
    claims = (
        *common_claims(found),
        at_least("I declines beyond p = 0.5: by", by_interval[0.5] - by_interval[0.9], 0),
        ascending(
            "V falls less than I from p 0.5 on",
            {"V": by_value[2] - by_value[-1], "I": by_interval[0.5] - by_interval[0.9]},
            note="Printed: nearly flat. It is where ties go to the oldest tuple, as the printed listing has "
            "it; with random ties, as the printed text has it, it falls from 0.70 to 0.56.",
        ),
        near("V with ties to the oldest is flat in p: greatest over least", max(oldest) / min(oldest), 1),
    )
    figures = {
        "p": list(PROBABILITIES),
        "ratios": list(RATIOS),
        **asdict(found),
        "CALS-V, ties to the oldest, p 0.1, 0.5, 0.9": oldest,
    }
    return Result(claims, figures)


def plot(result: Result, path: Path) -> None:
    """Accuracy against the coalescing probability."""
    draw_curves(
        path,
        {name: curve(PROBABILITIES, [result.figures["over_ratios"][name]]) for name in WAYS},
        title="Both halves of the cost are needed",
        x_label="coalescing probability",
        y_label="accuracy, mean over ratios of memory",
    )


EXPERIMENT = Experiment(
    id="shed-E3", title="CALS, values alone, intervals alone and RAND, synthetic streams", run=run, plot=plot
)
