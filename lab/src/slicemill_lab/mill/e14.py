"""mill-E14: delay of readings in denoising methods as the rate of tags grows (E14, M44-M46, M48).

Each tag is read ten times, 200 ms apart, and 5 % of all readings are noise. A window has twenty readings at 1
tag per second, and ten thousand at 500. A method that scans the window at each arrival falls behind. The
number of visited readings decides which method is overloaded first, and the cost of a visit decides which
method is best. So the order at the highest rate is shown for costs from 1 ns to 1 µs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from slicemill.connectors.generators.rfid import Tags
from slicemill.extensions.rfid import Denoised
from slicemill.kernels.arrays import Int64s
from slicemill_lab.claims import Claim, ascending, at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.rfid import (
    EAGER,
    LAZY,
    ORDERED,
    UNORDERED,
    VISIT_NS,
    WAYS,
    load,
    mean_delay_ms,
    overloading_visit_ns,
    readings,
)
from slicemill_lab.plotting import curve, draw_curves

TAGS_PER_SECOND = (1, 5, 50, 500)
HIGHEST = 500
# Costs of a visit to a reading, which determine the overloaded methods at the highest rate.
COSTS_NS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 50, 70, 100, 150, 200, 300, 500, 1000)
# A mean over few tags needs a long run.
SECONDS: Mapping[Scale, Mapping[int, float]] = {
    "small": {1: 1000, 5: 200, 50: 20, 500: 20},
    "full": {1: 10_000, 5: 2_000, 50: 200, 500: 60},
}


def run(seed: int, scale: Scale) -> Result:
    """Measure mean delay, load and visits by method and rate, and check the results."""
    delay: dict[str, list[float]] = {way: [] for way in WAYS}
    loads: dict[str, list[float]] = {way: [] for way in WAYS}
    visits: dict[str, list[float]] = {way: [] for way in WAYS}
    wrong: dict[str, int] = {"noise let out": 0, "out of order": 0, "not what the others let out": 0}
    for rate, seconds in SECONDS[scale].items():
        at, keys = readings(Tags(per_second=rate, noise=0.05, seconds=seconds, seed=seed))
        found = {way: denoise(at, keys) for way, denoise in WAYS.items()}
        for way, one in found.items():
            delay[way].append(mean_delay_ms(at, one))
            loads[way].append(load(at, one))
            visits[way].append(float(one.visits.mean()))
            for fault, count in _faults(way, one, keys, found[UNORDERED]).items():
                wrong[fault] += count
    # The last rate is the highest.
    by_cost = {cost: {way: mean_delay_ms(at, one, cost) for way, one in found.items()} for cost in COSTS_NS}
    overloaded_ns = {way: overloading_visit_ns(at, one) for way, one in found.items()}
    figures = {
        "tags_per_second": list(TAGS_PER_SECOND),
        "mean_delay_ms": delay,
        "load": loads,
        "visits_per_reading": visits,
        "mean_delay_ms_at_highest_rate_by_cost_of_a_visit_ns": by_cost,
        "overloaded_at_highest_rate_from_cost_of_a_visit_ns": overloaded_ns,
        "wrong": wrong,
    }
    return Result((*_claims(delay, visits, wrong), *_claims_by_cost(by_cost, overloaded_ns)), figures)


def plot(result: Result, path: Path) -> None:
    """Delay at the highest rate against the cost of a visit."""
    by_cost = result.figures["mean_delay_ms_at_highest_rate_by_cost_of_a_visit_ns"]
    draw_curves(
        path,
        {way: curve(COSTS_NS, [[one[way] for one in by_cost.values()]]) for way in WAYS},
        title=f"At {HIGHEST} tags/s, whoever visits more readings falls behind on a faster machine",
        x_label="cost of a visit to a reading [ns]",
        y_label="mean delay of a reading [ms]",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-E14",
    title="Delay of RFID denoising against the rate of tags",
    run=run,
    plot=plot,
)


def _faults(way: str, found: Denoised, keys: Int64s, others: Denoised) -> dict[str, int]:
    differ = np.setxor1d(found.readings, others.readings)
    backwards = np.diff(found.readings) < 0 if way != UNORDERED else np.zeros(0, np.bool_)
    return {
        "noise let out": int(np.sum(keys[found.readings] < 0)),
        "out of order": int(np.sum(backwards)),
        "not what the others let out": len(differ) + len(found.readings) - len(np.unique(found.readings)),
    }


def _claims(
    delay: Mapping[str, list[float]],
    visits: Mapping[str, list[float]],
    wrong: Mapping[str, int],
) -> tuple[Claim, ...]:
    by_rate = [dict(zip(delay, column, strict=True)) for column in zip(*delay.values(), strict=True)]
    *low, high = by_rate
    return (
        at_most(
            f"{UNORDERED} is good below {HIGHEST} tags/s: its delay over the next best, greatest",
            max(one[UNORDERED] / min(one[ORDERED], one[LAZY], one[EAGER]) for one in low),
            1,
        ),
        ascending(
            f"{UNORDERED} degrades at high rates [ms]",
            {"50 tags/s": low[-1][UNORDERED], f"{HIGHEST} tags/s": high[UNORDERED]},
            note="It is overloaded there, so its delay grows for as long as the run lasts.",
        ),
        at_least(
            f"{ORDERED} is worst: its delay over the greatest of the others, least over the rates",
            min(one[ORDERED] / max(one[UNORDERED], one[LAZY], one[EAGER]) for one in by_rate),
            1,
        ),
        ascending(
            f"at {HIGHEST} tags/s Eager is best, Lazy better than {ORDERED} [ms]",
            {way: high[way] for way in (EAGER, LAZY, ORDERED)},
        ),
        at_most(
            f"Eager is best at {HIGHEST} tags/s, {UNORDERED} included: delay over its",
            high[EAGER] / high[UNORDERED],
            1,
            note="Printed: Eager is best overall. Below that rate the unordered baseline lets readings out "
            f"earlier ({low[0][UNORDERED]:.0f} ms against {low[0][EAGER]:.0f} ms at 1 tag/s), as it waits "
            f"for no order. At {HIGHEST} it depends on the cost of a visit, here {VISIT_NS} ns: see below.",
        ),
        at_most(
            "Eager is best of the ordered ones at every rate: delay over that of Lazy, greatest",
            max(one[EAGER] / one[LAZY] for one in by_rate),
            1,
        ),
        ascending(
            f"why: readings looked at per arrival, at {HIGHEST} tags/s",
            {way: visits[way][-1] for way in (LAZY, EAGER, UNORDERED)},
        ),
        *(at_most(f"all filter correctly: {fault} [readings]", count, 0) for fault, count in wrong.items()),
    )


def _claims_by_cost(
    by_cost: Mapping[int, Mapping[str, float]], overloaded_ns: Mapping[str, float]
) -> tuple[Claim, ...]:
    best: dict[str, list[int]] = {way: [] for way in WAYS}
    for cost, one in by_cost.items():
        best[min(one, key=one.__getitem__)].append(cost)
    spans = "; ".join(
        f"{way} {costs[0]} to {costs[-1]} ns" for way in (UNORDERED, EAGER, LAZY) if (costs := best[way])
    )
    at_rate = f"at {HIGHEST} tags/s"
    return (
        ascending(
            f"{at_rate}, the cost of a visit from which a way cannot keep up [ns]",
            {way: overloaded_ns[way] for way in (UNORDERED, EAGER, LAZY)},
        ),
        ascending(
            f"{at_rate}, the least cost of a visit at which a way is best of all [ns]",
            {way: min(best[way], default=float("inf")) for way in (UNORDERED, EAGER, LAZY)},
            note=f"Printed: Eager is best overall. Best: {spans}.",
        ),
        at_most(
            f"{at_rate}, Lazy is better than {ORDERED} at every cost: delay over its, greatest",
            max(one[LAZY] / one[ORDERED] for one in by_cost.values()),
            1,
        ),
    )
