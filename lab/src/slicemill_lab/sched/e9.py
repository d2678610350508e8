"""sched-E9: the more selectivities differ, the more there is to balance (metrics-and-schedulers E9, A12, A15)

Selectivities between 0.1 and a maximum. Published for equal costs: no difference at 0.1; BSD 44 % below HR,
19 % below HNR at 0.5, 61 and 27 % at 1. With equal costs HR and HNR are one policy, so that cannot be: the
claims are checked with the testbed's five classes of costs, and that they are one policy with equal ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_curves
from slicemill_lab.sched.runs import SYNTHETIC, Service, by_policy, curve_over, shown
from slicemill_lab.spread import lower, lowest

POLICIES = ("bsd", "hnr", "hr")
LOAD = 0.95
PERCENT: Mapping[Scale, tuple[int, ...]] = {"small": (10, 50, 100), "full": (10, 30, 50, 70, 100)}
PUBLISHED = {50: {"HR": "44 %", "HNR": "19 %"}, 100: {"HR": "61 %", "HNR": "27 %"}}


def run(seed: int, scale: Scale) -> Result:
    """The norm of slowdowns by greatest selectivity."""
    low = by_policy("l2 slowdown", POLICIES, Service(LOAD, most=10), seed, scale)
    equal = by_policy("l2 slowdown", POLICIES, Service(LOAD, cost_classes=1), seed, scale)
    claims: list[Claim] = [
        within(
            f"all selectivities 0.1: {other} over BSD",
            sum(low[other]) / sum(low["BSD"]),
            0.95,
            1.05,
            note="published: no difference",
        )
        for other in ("HNR", "HR")
    ]
    for percent, published in PUBLISHED.items():
        found = by_policy("l2 slowdown", POLICIES, Service(LOAD, most=percent), seed, scale)
        claims.append(lowest(f"up to {percent / 100:g}: the lowest norm", "BSD", found))
        claims += [
            lower(
                f"up to {percent / 100:g}: BSD below {other}", found["BSD"], found[other], published=printed
            )
            for other, printed in published.items()
        ]
    claims.append(
        within(
            "equal costs: HNR over HR",
            sum(equal["HNR"]) / sum(equal["HR"]),
            1.0,
            1.0,
            note="published as different, which equal costs do not allow: their ideal times are equal, too",
        )
    )
    return Result(
        tuple(claims),
        {
            "arrivals": SYNTHETIC,
            "curves": {
                shown(policy): curve_over(PERCENT[scale], _at, "l2 slowdown", policy, seed, scale)
                for policy in POLICIES
            },
            "equal costs": equal,
        },
    )


def _at(percent: float) -> Service:
    return Service(LOAD, most=int(percent))


def plot(result: Result, path: Path) -> None:
    """The norm of slowdowns against the greatest selectivity."""
    draw_curves(
        path,
        result.figures["curves"],
        title=f"The more selectivities differ, the more BSD gains (load {LOAD:g}; {SYNTHETIC})",
        x_label="greatest selectivity [%]",
        y_label="l2 slowdown",
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="sched-E9", title="The norm of slowdowns by range of selectivities", run=run, plot=plot
)
