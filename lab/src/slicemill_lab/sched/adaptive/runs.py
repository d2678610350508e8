"""Policies with adaptive statistics compared with static ones (sched-E19 to sched-E21).

The number of tuples in an interval of the data, and the load, are not published. The published plots over
time go up to 400 s of a trace with
about 360 packets per second, so a hundredth of a run has at least 1,000 tuples. At full scale an interval has
1,000 tuples here, for 25 queries.
At small scale it has 100, the length of the window, for 40 queries. Gains grow with the interval, because
estimates lag behind by some windows.
The load is 0.95.

The treatment of a query that passed nothing for long is not published either. Its estimate is nearly 0, so
the query runs only when no other query has input, and its estimate is not updated (A14). The rule is used as
printed, without a correction. `GOING_BACK` is a possible correction: estimates of queries with waiting input
decay to the initial ones. Then no run is much worse than static ones, and most runs gain less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.policies.registry import make
from slicemill_lab.sched.runs import SYNTHETIC, shown
from slicemill_lab.simulator.loop import Adapting, simulate
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.simulator.workload import Workload
from slicemill_lab.spread import ordered, seeds
from slicemill_lab.testbeds.drifting import drifting

LOAD = 0.95
OBJECTIVES = {"hr": "mean response", "hnr": "mean slowdown", "brt": "l2 response", "bsd": "l2 slowdown"}
PUBLISHED = Adapting(window=100, alpha=0.175)
GOING_BACK = Adapting(window=100, alpha=0.175, decays=True)


@lru_cache(maxsize=5)
def _work(deviation: float, seed: int, scale: Scale) -> Workload:
    queries, tuples = (40, 100) if scale == "small" else (25, 1000)
    return drifting(LOAD, seed, deviation, queries=queries, tuples_per_interval=tuples)


@lru_cache(maxsize=1000)
def _figure(policy: str, deviation: float, adapting: Adapting | None, seed: int, scale: Scale) -> float:
    work = _work(deviation, seed, scale)
    tasks = cut(work.paths, "query", Objective.OUTPUT_RESPONSE)
    run = simulate(work, tasks, make(policy, tasks.tasks), adapting=adapting)
    return objectives(run)[OBJECTIVES[policy]]


def ratios(policy: str, deviation: float, adapting: Adapting, seed: int, scale: Scale) -> list[float]:
    """Return the policy's own objective with adaptive statistics relative to static ones, per seed."""
    return [
        _figure(policy, deviation, adapting, one, scale) / _figure(policy, deviation, None, one, scale)
        for one in seeds(seed)
    ]


def knob(
    number: int,
    title: str,
    name: str,
    label: str,
    values: Sequence[float],
    adapting: Callable[[float], Adapting],
    *,
    best: tuple[float, float],
) -> Experiment:
    """Return an experiment that varies one parameter, for a static and for a balanced priority.

    Published: both ends are worse than the middle, and the range of the best value.
    """
    deviation = 5.0

    def run(seed: int, scale: Scale) -> Result:
        claims: list[Claim] = []
        measured: dict[str, list[float]] = {}
        curves = {}
        for policy in ("hr", "bsd"):
            found = {value: ratios(policy, deviation, adapting(value), seed, scale) for value in values}
            inner = {value: found[value] for value in values if best[0] <= value <= best[1]}
            middle = [fmean(row) for row in zip(*inner.values(), strict=True)]
            claims += [
                ordered(f"{shown(policy)}: {end} is worse", {"between": middle, end: found[value]})
                for end, value in (("least", values[0]), ("most", values[-1]))
            ]
            measured[f"{shown(policy)}: the best {name}"] = [
                min(values, key=lambda value: found[value][place]) for place in range(len(middle))
            ]
            curves[shown(policy)] = curve(values, list(zip(*found.values(), strict=True)))
        return Result(tuple(claims), {"arrivals": SYNTHETIC, "curves": curves}, measured)

    def plot(result: Result, path: Path) -> None:
        draw_curves(
            path,
            result.figures["curves"],
            title=f"{title} (load {LOAD:g}, deviation {deviation:g}; {SYNTHETIC})",
            x_label=label,
            y_label="adaptive over static, own objective",
            log_x=True,
        )

    return Experiment(id=f"sched-E{number}", title=title, run=run, plot=plot)
