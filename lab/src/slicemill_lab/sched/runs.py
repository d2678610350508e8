"""Runs of policies on the testbeds of the scheduling experiments, cached for shared use.

Arrivals are synthetic, not those of the published packet trace. Orders and signs are claims; percentages are
compared with the published ones by one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import Curve, curve, draw_curves
from slicemill_lab.policies.registry import make
from slicemill_lab.published.figure import changes
from slicemill_lab.simulator.loop import SimulatedRun, simulate
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.spread import SEEDS, lower, lowest, seeds
from slicemill_lab.testbeds.quality import Testbed, quality_of_data, quality_of_service

SYNTHETIC = "LBL-like synthetic ON/OFF arrivals"
HIGH = 0.97
POISSON = "Poisson arrivals, half of the streams in bursts of ten"
LOADS: Mapping[Scale, tuple[float, ...]] = {
    "small": (0.5, 0.7, 0.9, 0.97),
    "full": (0.5, 0.7, 0.9, 0.95, 0.97),
}
DATA_LOADS: Mapping[Scale, tuple[float, ...]] = {
    "small": (0.1, 0.5, 0.8, 0.95),
    "full": (0.1, 0.5, 0.95),
}
# Names of policies in the published plots, other than capitals.
_NAMES = {"slices": "RR", "chain": "Chain"}


def shown(policy: str) -> str:
    """Return the name of a policy in the published plots."""
    return _NAMES.get(policy, policy.upper())


@dataclass(frozen=True, slots=True)
class Service:
    """Testbed of P36 at a load. Selectivities go up to `most` percent.

    By default, the scale determines the numbers of queries and tuples.
    """

    load: float
    most: int = 100
    cost_classes: int = 5
    queries: int | None = None
    tuples: int | None = None

    def bed(self, seed: int, scale: Scale) -> Testbed:
        queries, tuples = (250, 600) if scale == "small" else (500, 3000)
        return quality_of_service(
            self.load,
            seed,
            queries=self.queries or queries,
            tuples=self.tuples or tuples,
            selectivities=(10, self.most),
            cost_classes=self.cost_classes,
        )


@dataclass(frozen=True, slots=True)
class Data:
    """Testbed of P37 at a load. `traces` has two ON/OFF streams instead of ten Poisson streams.

    With `weighted`, every fifth query has ten times the weight of the others (P33).
    """

    load: float
    bursty: int = 5
    skew: float = 0.0
    cost_classes: int = 3
    traces: bool = False
    weighted: bool = False

    def bed(self, seed: int, scale: Scale) -> Testbed:
        queries, tuples = (100, 400) if scale == "small" else (250, 10_000)
        return quality_of_data(
            self.load,
            seed,
            queries=queries,
            tuples=tuples * (2 if self.traces else 1),
            streams=2 if self.traces else 10,
            bursty=0 if self.traces else self.bursty,
            skew=self.skew,
            cost_classes=self.cost_classes,
            traces=self.traces,
            weights=[0.1 if query % 5 and self.weighted else 1.0 for query in range(queries)],
        )


Setting = Service | Data


@lru_cache(maxsize=SEEDS)
def bed_of(setting: Setting, seed: int, scale: Scale) -> Testbed:
    return setting.bed(seed, scale)


def play(bed: Testbed, policy: str, **options: float) -> SimulatedRun:
    """Simulate with whole queries as tasks, or with the tasks of Chain."""
    if policy == "chain":
        tasks = cut(bed.work.paths, "chain", Objective.MEMORY)
        return simulate(bed.work, tasks, make("component", tasks.tasks))
    tasks = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE)
    return simulate(bed.work, tasks, make(policy, tasks.tasks, **options))


@lru_cache(maxsize=4000)
def _figures(
    setting: Setting, policy: str, seed: int, scale: Scale, options: tuple[tuple[str, float], ...]
) -> Mapping[str, float]:
    return objectives(play(bed_of(setting, seed, scale), policy, **dict(options)))


def samples(
    objective: str, policy: str, setting: Setting, seed: int, scale: Scale, **options: float
) -> list[float]:
    """Return an objective under a policy, one value per seed."""
    given = tuple(options.items())
    return [_figures(setting, policy, s, scale, given)[objective] for s in seeds(seed)]


def by_policy(
    objective: str, policies: Sequence[str], setting: Setting, seed: int, scale: Scale
) -> dict[str, list[float]]:
    """Return an objective under several policies, in the given order."""
    return {shown(policy): samples(objective, policy, setting, seed, scale) for policy in policies}


def curve_over(
    x: Sequence[float], at: Callable[[float], Setting], objective: str, policy: str, seed: int, scale: Scale
) -> Curve:
    """Return an objective under a policy as the setting changes."""
    columns = [samples(objective, policy, at(value), seed, scale) for value in x]
    return curve(x, list(zip(*columns, strict=True)))


def sweep(
    objective: str,
    policies: Sequence[str],
    seed: int,
    scale: Scale,
    *,
    at: Callable[[float], Setting] = Service,
    loads: Mapping[Scale, tuple[float, ...]] = LOADS,
    arrivals: str = SYNTHETIC,
) -> dict[str, object]:
    """Return the objective of each policy over the loads, as figures of a result."""
    return {
        "arrivals": arrivals,
        "objective": objective,
        "loads": list(loads[scale]),
        "curves": {
            shown(policy): curve_over(loads[scale], at, objective, policy, seed, scale) for policy in policies
        },
    }


def plot_sweep(result: Result, path: Path, title: str) -> None:
    draw_curves(
        path,
        result.figures["curves"],
        title=f"{title} ({result.figures['arrivals']})",
        x_label="utilisation",
        y_label=result.figures["objective"],
        log_y=True,
    )


def greatest_fall(
    objective: str, own: str, other: str, seed: int, scale: Scale, *, at: Callable[[float], Setting] = Service
) -> list[float]:
    """Compare two policies at the load with the greatest difference, for values published as "up to"."""
    by_load = [
        changes(*(samples(objective, policy, at(load), seed, scale) for policy in (own, other)))
        for load in LOADS[scale]
    ]
    return min(by_load, key=fmean)


@dataclass(frozen=True, slots=True)
class Below:
    """Rival of a policy, at a load or, if published as "up to", over all loads."""

    policy: str
    load: float | None = None


def best_at(
    number: int,
    title: str,
    objective: str,
    policies: Sequence[str],
    *,
    lowest_at: Sequence[float],
    below: Sequence[Below],
) -> Experiment:
    """Return an experiment on the testbed of P36: the first policy has the lowest value of an objective."""
    own = policies[0]

    def run(seed: int, scale: Scale) -> Result:
        claims: list[Claim] = [
            lowest(
                f"load {load:g}: the lowest {objective}",
                shown(own),
                by_policy(objective, policies, Service(load), seed, scale),
            )
            for load in lowest_at
        ]
        measured: dict[str, list[float]] = {}
        for other in below:
            against = f"{shown(own)} against {shown(other.policy)}"
            if other.load is None:
                measured[against] = greatest_fall(objective, own, other.policy, seed, scale)
            ours, theirs = (
                samples(objective, policy, Service(other.load or HIGH), seed, scale)
                for policy in (own, other.policy)
            )
            if other.load is not None:
                measured[f"load {other.load:g}: {against}"] = changes(ours, theirs)
            claims.append(
                lower(f"load {other.load or HIGH:g}: {shown(own)} below {shown(other.policy)}", ours, theirs)
            )
        return Result(tuple(claims), sweep(objective, policies, seed, scale), measured)

    def plot(result: Result, path: Path) -> None:
        plot_sweep(result, path, f"{shown(own)} has the lowest {objective}")

    return Experiment(id=f"sched-E{number}", title=title, run=run, plot=plot)
