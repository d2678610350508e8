"""Runs of policies on the testbed of the scheduling experiments, shared by those that plot the same runs.

Arrivals are synthetic ON/OFF traffic, not the published packet trace; percentages therefore have room, orders
and signs have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from slicemill.lab.experiment import Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.scheduling.charts import Objective
from slicemill.scheduling.loop import simulate
from slicemill.scheduling.measures import objectives
from slicemill.scheduling.registry import make
from slicemill.scheduling.testbeds import Testbed, quality_of_data, quality_of_service
from slicemill.scheduling.units import cut

SYNTHETIC = "synthetic ON/OFF arrivals"
POISSON = "Poisson arrivals, half of the streams in bursts of ten"
SIZES: Mapping[Scale, tuple[int, int]] = {"small": (250, 600), "full": (500, 3000)}
SEEDS: Mapping[Scale, int] = {"small": 3, "full": 5}
LOADS: Mapping[Scale, tuple[float, ...]] = {
    "small": (0.5, 0.7, 0.9, 0.97),
    "full": (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99),
}
# How names of policies appear in the published plots.
NAMES = {"slices": "RR", "srpt": "SRPT", "hr": "HR", "hnr": "HNR", "fcfs": "FCFS", "lsf": "LSF"} | {
    "bsd": "BSD",
    "brt": "BRT",
    "fas": "FAS",
}


@lru_cache(maxsize=4)
def _service(utilisation: float, seed: int, scale: Scale) -> Testbed:
    queries, tuples = SIZES[scale]
    return quality_of_service(utilisation, seed, queries=queries, tuples=tuples)


@lru_cache(maxsize=2)
def _data(utilisation: float, seed: int, scale: Scale, bursty: int, skew: float, classes: int) -> Testbed:
    queries, tuples = (100, 400) if scale == "small" else (250, 10_000)
    return quality_of_data(
        utilisation, seed, queries=queries, tuples=tuples, bursty=bursty, skew=skew, cost_classes=classes
    )


@lru_cache(maxsize=2000)
def service_figures(policy: str, utilisation: float, seed: int, scale: Scale) -> Mapping[str, float]:
    """All objectives of one run on the testbed of P36."""
    return _figures(_service(utilisation, seed, scale), policy)


@lru_cache(maxsize=2000)
def data_figures(
    policy: str,
    utilisation: float,
    seed: int,
    scale: Scale,
    *,
    beta: float = 1.0,
    bursty: int = 5,
    skew: float = 0.0,
    classes: int = 3,
) -> Mapping[str, float]:
    """All objectives of one run on the testbed of P37."""
    options = {"beta": beta} if policy == "fas" else {}
    return _figures(_data(utilisation, seed, scale, bursty, skew, classes), policy, **options)


def _figures(bed: Testbed, policy: str, **options: float) -> Mapping[str, float]:
    units = cut(bed.work.paths, "query", Objective.OUTPUT_RESPONSE)
    return objectives(simulate(bed.work, units, make(policy, units.units, **options)))


def seeds(seed: int, scale: Scale) -> range:
    return range(seed, seed + SEEDS[scale])


def reduction(objective: str, ours: str, other: str, load: float, seed: int, scale: Scale) -> float:
    """By what part `ours` is below `other`, the mean over the seeds; negative where it is above."""
    return fmean(
        1
        - service_figures(ours, load, s, scale)[objective] / service_figures(other, load, s, scale)[objective]
        for s in seeds(seed, scale)
    )


def sweep(objective: str, policies: Sequence[str], seed: int, scale: Scale) -> dict[str, object]:
    """The objective of each policy over the loads, as figures of a result."""
    loads = LOADS[scale]
    return {
        "arrivals": SYNTHETIC,
        "objective": objective,
        "loads": list(loads),
        "curves": {
            NAMES[policy]: curve(
                loads,
                [
                    [service_figures(policy, x, s, scale)[objective] for x in loads]
                    for s in seeds(seed, scale)
                ],
            )
            for policy in policies
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


def mean_at(
    objective: str, policies: Sequence[str], load: float, seed: int, scale: Scale
) -> dict[str, float]:
    """The objective at one load by policy, in the order given."""
    return {
        NAMES[policy]: fmean(service_figures(policy, load, s, scale)[objective] for s in seeds(seed, scale))
        for policy in policies
    }


def data_mean(objective: str, policy: str, load: float, seed: int, scale: Scale, **options: float) -> float:
    """The mean over the seeds of an objective on the testbed of P37."""
    return fmean(data_figures(policy, load, s, scale, **options)[objective] for s in seeds(seed, scale))


def data_sweep(objective: str, policies: Sequence[str], seed: int, scale: Scale) -> dict[str, object]:
    """The objective of each policy over the loads on the testbed of P37, as figures of a result."""
    loads = (0.1, 0.5, 0.8, 0.95) if scale == "small" else (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    return {
        "arrivals": POISSON,
        "objective": objective,
        "loads": list(loads),
        "curves": {
            NAMES[policy]: curve(
                loads,
                [[data_figures(policy, x, s, scale)[objective] for x in loads] for s in seeds(seed, scale)],
            )
            for policy in policies
        },
    }
