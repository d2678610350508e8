"""sched-E9: norm of slowdowns by the range of selectivities (metrics-and-schedulers E9, A12, A15).

Selectivities are between 0.1 and a maximum. Published for equal costs: no difference at 0.1; BSD is 44 %
below HR and 19 % below HNR at 0.5, and 61 and 27 % at 1. With equal costs HR and HNR are the same policy, so
these figures are impossible. The claims are checked with the testbed's five cost classes. With equal costs,
the equality of HR and HNR is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, equal
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_curves
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import SYNTHETIC, Service, by_policy, curve_over, shown
from slicemill_lab.spread import lower, lowest

POLICIES = ("bsd", "hnr", "hr")
LOAD = 0.95
PERCENT: Mapping[Scale, tuple[int, ...]] = {"small": (10, 50, 100), "full": (10, 50, 100)}
OTHERS = ("HR", "HNR")


def run(seed: int, scale: Scale) -> Result:
    """The norm of slowdowns by greatest selectivity."""
    alike = by_policy("l2 slowdown", POLICIES, Service(LOAD, cost_classes=1), seed, scale)
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    for percent in (10, 50, 100):
        found = by_policy("l2 slowdown", POLICIES, Service(LOAD, most=percent), seed, scale)
        up_to = f"{'of' if percent == 10 else 'up to'} {percent / 100:g}"
        for other in OTHERS:
            measured[f"selectivities {up_to}: BSD against {other}"] = changes(found["BSD"], found[other])
            if percent > 10:
                claims.append(lower(f"selectivities {up_to}: BSD below {other}", found["BSD"], found[other]))
        if percent > 10:
            claims.append(lowest(f"selectivities {up_to}: the lowest norm", "BSD", found))
    claims.append(
        equal(
            "equal costs: HNR over HR",
            sum(alike["HNR"]) / sum(alike["HR"]),
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
            "equal costs": alike,
        },
        measured,
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
