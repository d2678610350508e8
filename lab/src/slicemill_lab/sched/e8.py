"""sched-E8: fairness of policies between queries (metrics-and-schedulers E8, P12, P13, P15, P36).

Slowdown of the cheapest queries by class of selectivity. Published: the highest rate is very unfair to
queries with few results, HNR less so, and BSD is the fairest of the three.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.sched.runs import SYNTHETIC, Service, bed_of, play, shown
from slicemill_lab.simulator.measures import record
from slicemill_lab.spread import ordered, seeds

POLICIES = ("bsd", "hnr", "hr")
LOAD = 0.95
CLASSES = tuple(range(10, 100, 10))  # lower ends of the classes in percent; the last class includes 100


def run(seed: int, scale: Scale) -> Result:
    """Mean slowdown of the cheapest queries by class of selectivity."""
    found = {shown(policy): [_by_class(policy, s, scale) for s in seeds(seed)] for policy in POLICIES}
    unfair = {name: [row[0] / row[-1] for row in rows] for name, rows in found.items()}
    claims = (
        ordered(
            "slowdown of the least selective class over that of the most: BSD is fairest, then HNR",
            unfair,
            note="published as curves, without figures",
        ),
    )
    return Result(
        claims,
        {
            "arrivals": SYNTHETIC,
            "curves": {name: curve([c / 100 for c in CLASSES], rows) for name, rows in found.items()},
            "unfairness": unfair,
        },
    )


def _by_class(policy: str, seed: int, scale: Scale) -> list[float]:
    bed = bed_of(Service(LOAD), seed, scale)
    classes = {
        query: str(CLASSES[min(int(share * 10 + 1e-9), 9) - 1])
        for query, (share, cost) in enumerate(zip(bed.selectivity, bed.cost_class, strict=True))
        if cost == 0
    }
    kept = record(play(bed, policy), inf, classes)
    return [kept.of_class(str(name)).slowdown.mean for name in CLASSES]


def plot(result: Result, path: Path) -> None:
    """Slowdown against class of selectivity."""
    draw_curves(
        path,
        result.figures["curves"],
        title=f"Who pays: slowdown of the cheapest queries (load {LOAD:g}; {SYNTHETIC})",
        x_label="selectivity of the query's predicates",
        y_label="mean slowdown",
        log_y=True,
    )


EXPERIMENT = Experiment(id="sched-E8", title="Slowdown by class of selectivity", run=run, plot=plot)
