"""sched-E16: number of clusters (metrics-and-schedulers E16, P18-P20).

BSD with queries in clusters and charged decisions: a priority or a comparison costs as much as the cheapest
operator. Few clusters are inaccurate, and many clusters make decisions expensive. Published at 95 % load:
with logarithmic clusters the least norm is at 12 clusters, 5 % above BSD with free decisions. With uniform
clusters the norm is very high for few clusters and falls slowly.

With free decisions, clusters cost as little here as published. The difference is the charge for decisions.
With 12 clusters a tuple takes 12 decisions. Each of them inspects about ten pairs and bounds of Fagin's
algorithm, at two operations each. That is 4 % of the work, which raises a load of 0.95 to 0.99. How
operations were counted is not published. At small scale, 12 clusters are 24 % above BSD, or 16 % with free
bounds. At full scale, where overload has more time to accumulate, they are 63 % above it, and 6 clusters are
best.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import Curve, curve, draw_curves
from slicemill_lab.sched.clusters.runs import LOAD, charged, relative
from slicemill_lab.sched.runs import SYNTHETIC
from slicemill_lab.simulator.clusters import logarithmic, uniform
from slicemill_lab.spread import lower, ordered, seeds

COUNTS = (2, 4, 6, 8, 12, 16, 24, 40)
PUBLISHED_BEST = 12
CHARGED = (
    "only up to 6 clusters may be above it. With 12, deciding takes 4 % of the work here and brings the load "
    "near 1, where the norm is steep and seeds differ much"
)


def run(seed: int, scale: Scale) -> Result:
    """Measure the norm of slowdowns relative to BSD without overhead, by number of clusters."""
    kinds = {"logarithmic": logarithmic, "uniform": uniform}
    found = {
        name: {
            count: [charged(one, scale, partial(kind, count=count)) for one in seeds(seed)]
            for count in COUNTS
        }
        for name, kind in kinds.items()
    }
    free = [
        charged(one, scale, partial(logarithmic, count=PUBLISHED_BEST), operation=0.0) for one in seeds(seed)
    ]
    hnr = [relative(one, scale, "hnr") for one in seeds(seed)]
    log = found["logarithmic"]
    means = {count: sum(values) / len(values) for count, values in log.items()}
    best = min(means, key=lambda count: means[count])
    claims: list[Claim] = [
        ordered(
            "logarithmic: few are worse than the best number, and so are many",
            {"best": log[best], "ends": [min(a, b) for a, b in zip(log[2], log[40], strict=True)]},
        ),
        lower(f"{PUBLISHED_BEST} logarithmic clusters: decisions cost something", free, log[PUBLISHED_BEST]),
        lower("logarithmic, the best number: below HNR", log[best], hnr, CHARGED),
        *(
            lower(f"{count} clusters: logarithmic below uniform", log[count], found["uniform"][count])
            for count in (2, PUBLISHED_BEST)
        ),
    ]
    curves: dict[str, Curve] = {
        name: curve(COUNTS, list(zip(*by_count.values(), strict=True))) for name, by_count in found.items()
    }
    curves["HNR"] = curve(COUNTS, [[value] * len(COUNTS) for value in hnr])
    measured: dict[str, Sequence[float]] = {
        "the best number of logarithmic clusters": [
            min(COUNTS, key=lambda count: log[count][place]) for place in range(len(hnr))
        ],
        f"{PUBLISHED_BEST} logarithmic clusters against BSD without overhead": [
            value - 1 for value in log[PUBLISHED_BEST]
        ],
    }
    figures = {"arrivals": SYNTHETIC, "curves": curves, "12 clusters, free": fmean(free) - 1}
    return Result(tuple(claims), figures, measured)


def plot(result: Result, path: Path) -> None:
    """The norm against the number of clusters."""
    draw_curves(
        path,
        result.figures["curves"],
        title=f"Few clusters are coarse, many are dear (load {LOAD:g}; {SYNTHETIC})",
        x_label="clusters",
        y_label="l2 slowdown, relative to BSD without overhead",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="sched-E16", title="The norm of slowdowns by number of clusters", run=run, plot=plot
)
