"""sched-E11: objectives of policies over time (metrics-and-schedulers E11, P6-P9).

The four objectives over time, with results counted at their delivery. Published: each policy is best at its
own objective over time, especially at peak times.

The publication does not define the rivals, the points of the plots, and the peaks. Here the rivals are those
of the figures over the load (sched-E1, E2, E6, E7), a point covers the results delivered in a time interval,
and a peak is an interval in which more work waits than on average. An earlier reading had failed: results by
the arrival of their tuples, HR, HNR, BRT and BSD compared with each other, and peaks where more work arrives
than there is time. Then BRT was best in 49 % of the intervals, and the gaps in mean response and mean
slowdown were smaller at bursts, because the backlog of a burst outlasts it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats
from slicemill.metrics.quality_of_service import Summary
from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.sched.runs import SYNTHETIC, Service, bed_of, play, shown
from slicemill_lab.simulator.loop import SimulatedRun
from slicemill_lab.simulator.measures import results
from slicemill_lab.spread import lowest, ordered, seeds

Bools = npt.NDArray[np.bool_]
LOAD = 0.95
BUCKETS = 20
# Policy made for the objective, followed by its rivals.
RIVALS = {
    "mean response": ("hr", "hnr", "srpt", "fcfs"),
    "mean slowdown": ("hnr", "hr", "srpt", "slices"),
    "l2 response": ("brt", "hr", "fcfs"),
    "l2 slowdown": ("bsd", "hnr", "lsf"),
}


def run(seed: int, scale: Scale) -> Result:
    """Measure each objective in each time interval, under each of its policies."""
    tables = [_over_time(s, scale) for s in seeds(seed)]
    peaks = [_is_peak(s, scale) for s in seeds(seed)]
    claims: list[Claim] = []
    for objective, policies in RIVALS.items():
        best: list[list[float]] = []
        elsewhere: list[float] = []
        at_peaks: list[float] = []
        for table, peak in zip((found[objective] for found in tables), peaks, strict=True):
            some = ~np.isnan(table).any(axis=0)  # intervals with results under each of the policies
            gap = table[1:].mean(axis=0) - table[0]
            best.append((table <= table.min(axis=0))[:, some].mean(axis=1).tolist())
            elsewhere.append(float(gap[some & ~peak].mean()))
            at_peaks.append(float(gap[some & peak].mean()))
        shares = {shown(policy): [-row[place] for row in best] for place, policy in enumerate(policies)}
        own_shares = [row[0] for row in best]
        claims.append(
            lowest(
                f"who is best at {objective} most of the time",
                shown(policies[0]),
                shares,
                note=f"published: best over time, without figures; {min(own_shares):.0%} to "
                f"{max(own_shares):.0%} of {BUCKETS} stretches",
            )
        )
        claims.append(
            ordered(
                f"{objective}: the gap to the others is larger at peaks",
                {"elsewhere": elsewhere, "at peaks": at_peaks},
                note="a peak: more work waits than on average",
            )
        )
    first = tables[0]["l2 slowdown"]
    return Result(
        tuple(claims),
        {
            "arrivals": SYNTHETIC,
            "l2 slowdown": {
                shown(policy): row.tolist() for policy, row in zip(RIVALS["l2 slowdown"], first, strict=True)
            },
        },
    )


def _over_time(seed: int, scale: Scale) -> dict[str, Floats]:
    """Return, for each objective, a row per policy and a column per time interval."""
    bed = bed_of(Service(LOAD), seed, scale)
    bucket = float(bed.work.arrival.max()) / BUCKETS
    rows = {
        policy: _stretches(play(bed, policy), bucket) for policies in RIVALS.values() for policy in policies
    }
    return {
        objective: np.array([rows[policy][objective] for policy in policies])
        for objective, policies in RIVALS.items()
    }


def _stretches(run: SimulatedRun, bucket: float) -> dict[str, list[float]]:
    """Return the objectives of the results delivered in each time interval."""
    arrived, left, ideal = results(run)
    found: dict[str, list[float]] = {objective: [] for objective in RIVALS}
    for number in range(BUCKETS):
        here = left // bucket == number
        took = (left - arrived)[here]
        for name, values in (("response", took), ("slowdown", took / ideal[here])):
            summary = Summary()
            summary.add(values)
            found[f"mean {name}"].append(summary.mean)
            found[f"l2 {name}"].append(summary.l2)
    return found


def _is_peak(seed: int, scale: Scale) -> Bools:
    """Return the intervals in which more work waits than on average, if all tuples have equal work."""
    work = bed_of(Service(LOAD), seed, scale).work
    arrived = work.arrival[work.tuples(0)]
    each = LOAD * float(arrived.max()) / len(arrived)
    moments = (np.arange(BUCKETS * 50) + 0.5) * float(arrived.max()) / (BUCKETS * 50)
    waits = _unfinished(arrived, each, moments).reshape(BUCKETS, -1).mean(axis=1)
    peaks: Bools = waits > waits.mean()
    return peaks


def _unfinished(arrived: Floats, each: float, moments: Floats) -> Floats:
    """Return the waiting work at some moments, if each arrival adds `each`."""
    left = np.empty(len(arrived))
    now = waiting = 0.0
    for place, time in enumerate(arrived):
        waiting = max(0.0, waiting - (time - now)) + each
        left[place], now = waiting, time
    last = np.searchsorted(arrived, moments, side="right") - 1
    since: Floats = np.where(last < 0, 0.0, np.maximum(0.0, left[last] - (moments - arrived[last])))
    return since


def plot(result: Result, path: Path) -> None:
    """The norm of slowdowns over time."""
    draw_curves(
        path,
        {name: curve(range(BUCKETS), [row]) for name, row in result.figures["l2 slowdown"].items()},
        title=f"The norm of slowdowns over time (load {LOAD:g}; {SYNTHETIC}; one seed)",
        x_label="stretch of time in which results came out",
        y_label="l2 slowdown",
        log_y=True,
    )


EXPERIMENT = Experiment(id="sched-E11", title="Four objectives over time", run=run, plot=plot)
