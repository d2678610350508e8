"""sched-E16: how many clusters? (metrics-and-schedulers E16, P18-P20)

BSD with queries in clusters, which pays for each decision: a priority or a comparison costs as much as the
cheapest operator. Few clusters are coarse, many are dear to decide between. Published at 95 % load: with
logarithmic clusters the least norm is at 12, 5 % above BSD that decides for nothing; with uniform ones it is
very high for few and falls slowly.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from slicemill.lab.claims import Claim, within
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import Curve, curve, draw_curves
from slicemill.lab.sched_clusters import LOAD, charged, relative
from slicemill.lab.sched_runs import SYNTHETIC
from slicemill.lab.spread import lower, ordered, seeds
from slicemill.scheduling.clusters import logarithmic, uniform

COUNTS = (2, 4, 6, 8, 12, 16, 24, 40)
PUBLISHED_BEST = 12


def run(seed: int, scale: Scale) -> Result:
    """The norm of slowdowns over that of BSD without overhead, by number of clusters."""
    kinds = {"logarithmic": logarithmic, "uniform": uniform}
    found = {
        name: {
            count: [charged(one, scale, partial(kind, count=count)) for one in seeds(seed)]
            for count in COUNTS
        }
        for name, kind in kinds.items()
    }
    hnr = [relative(one, scale, "hnr") for one in seeds(seed)]
    log = found["logarithmic"]
    means = {count: sum(values) / len(values) for count, values in log.items()}
    best = min(means, key=lambda count: means[count])
    claims: list[Claim] = [
        ordered(
            "logarithmic: few are worse than the best number, and so are many",
            {"best": log[best], "ends": [min(a, b) for a, b in zip(log[2], log[40], strict=True)]},
        ),
        within(
            "logarithmic: the best number of clusters",
            best,
            8,
            16,
            note=f"published: {PUBLISHED_BEST}; that many are {means[PUBLISHED_BEST] - 1:.0%} above BSD "
            f"without overhead here (published: 5 %), the best number {means[best] - 1:.0%}",
        ),
        lower(
            "logarithmic, the best number: below HNR",
            log[best],
            hnr,
            published="only up to 6 clusters may be above it. What deciding costs brings the load near 1, "
            "where seeds differ much: with 3000 tuples one was 4 % below HNR, another 23 % above",
        ),
        *(
            lower(f"{count} clusters: logarithmic below uniform", log[count], found["uniform"][count])
            for count in (2, PUBLISHED_BEST)
        ),
    ]
    curves: dict[str, Curve] = {
        name: curve(COUNTS, list(zip(*by_count.values(), strict=True))) for name, by_count in found.items()
    }
    curves["HNR"] = curve(COUNTS, [[value] * len(COUNTS) for value in hnr])
    return Result(tuple(claims), {"arrivals": SYNTHETIC, "curves": curves})


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
