"""sched-E11: who is best while it goes on? (metrics-and-schedulers E11, P6-P9)

The four objectives over time, results by the time at which their tuples arrived. Published: each policy is
best at its own objective over time, and the gap is largest at bursts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slicemill.lab.claims import Claim, at_least
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.lab.sched_runs import SYNTHETIC, Service, bed_of, play, shown
from slicemill.lab.spread import SEEDS, ordered, seeds
from slicemill.scheduling.measures import record
from slicemill.scheduling.metrics import QueryFigures
from slicemill.scheduling.policy import Floats

Bools = npt.NDArray[np.bool_]
LOAD = 0.95
BUCKETS = 20
OBJECTIVES: dict[str, Callable[[QueryFigures], float]] = {
    "hr": lambda figures: figures.response.mean,
    "hnr": lambda figures: figures.slowdown.mean,
    "brt": lambda figures: figures.response.l2,
    "bsd": lambda figures: figures.slowdown.l2,
}
WHAT = {"hr": "mean response", "hnr": "mean slowdown", "brt": "l2 response", "bsd": "l2 slowdown"}


def run(seed: int, scale: Scale) -> Result:
    """Each objective in each stretch of time, under each of the four policies."""
    tables = [_over_time(s, scale) for s in seeds(seed)]
    bursts = [_is_burst(s, scale) for s in seeds(seed)]
    claims: list[Claim] = []
    for row, policy in enumerate(OBJECTIVES):
        own = [_filled(table[row] <= table.min(axis=0), table) for table in _of(policy, tables)]
        claims.append(
            at_least(
                f"{shown(policy)} is best at its {WHAT[policy]} in this part of the time",
                float(np.mean(np.concatenate(own))),
                0.5,
                note=f"published: best over time, without figures; {SEEDS} seeds of {BUCKETS} stretches",
            )
        )
        gaps = [np.delete(table, row, axis=0).mean(axis=0) - table[row] for table in _of(policy, tables)]
        claims.append(
            ordered(
                f"{WHAT[policy]}: the gap to the others is larger at bursts",
                {
                    "elsewhere": [float(np.nanmean(gap[~b])) for gap, b in zip(gaps, bursts, strict=True)],
                    "at bursts": [float(np.nanmean(gap[b])) for gap, b in zip(gaps, bursts, strict=True)],
                },
                note="a burst: more work arrives than there is time; what it leaves behind outlasts it, so "
                "that means are as far apart for those who come next",
            )
        )
    first = tables[0]["bsd"]
    return Result(
        tuple(claims),
        {
            "arrivals": SYNTHETIC,
            "l2 slowdown": {shown(p): row.tolist() for p, row in zip(OBJECTIVES, first, strict=True)},
        },
    )


def _of(policy: str, tables: list[dict[str, Floats]]) -> list[Floats]:
    return [table[policy] for table in tables]


def _filled(values: Bools, table: Floats) -> Bools:
    """Without the stretches of time that brought no result."""
    filled: Bools = values[~np.isnan(table[0])]
    return filled


def _over_time(seed: int, scale: Scale) -> dict[str, Floats]:
    """For the objective of each policy, a row per policy and a column per stretch of time."""
    bed = bed_of(Service(LOAD), seed, scale)
    bucket = float(bed.work.arrival.max()) / BUCKETS * (1 + 1e-9)
    records = [record(play(bed, policy), bucket) for policy in OBJECTIVES]
    parts = [[kept.of_bucket(number) for number in range(BUCKETS)] for kept in records]
    return {
        policy: np.array([[figure(part) for part in row] for row in parts])
        for policy, figure in OBJECTIVES.items()
    }


def _is_burst(seed: int, scale: Scale) -> Bools:
    work = bed_of(Service(LOAD), seed, scale).work
    arrived = work.arrival[work.tuples(0)]
    counts = np.histogram(arrived, bins=BUCKETS, range=(0, float(arrived.max())))[0]
    bursts: Bools = counts / counts.mean() * LOAD > 1
    return bursts


def plot(result: Result, path: Path) -> None:
    """The norm of slowdowns over time."""
    draw_curves(
        path,
        {name: curve(range(BUCKETS), [row]) for name, row in result.figures["l2 slowdown"].items()},
        title=f"The norm of slowdowns over time (load {LOAD:g}; {SYNTHETIC}; one seed)",
        x_label="stretch of time in which tuples arrived",
        y_label="l2 slowdown",
        log_y=True,
    )


EXPERIMENT = Experiment(id="sched-E11", title="Four objectives over time", run=run, plot=plot)
