"""A join on a cluster as its rate rises, with and without rescaling (S40, S41).

The join starts with one subtask. With adaptation, the engine adds subtasks on other workers when one
subtask is busy. Without, it keeps one subtask. There are two workers, since the machine of all figures here
has two cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path

from slicemill_lab.claims import Claim, at_least, at_most, equal, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.ring.on_cluster import MeasuredNodes, NodesRun, measured_nodes
from slicemill_lab.slice.ring.runs import RATE

WORKERS = 2
RISING_WINDOW_S: Mapping[Scale, float] = {"small": 0.6, "full": 2.0}
THIRDS: Mapping[Scale, int] = {"small": 2, "full": 10}
"""Seconds of each third of a run. The rate rises after the first third."""
WAYS = {"with adaptation": True, "without": False}


def follow_on_cluster(
    cost: str, selectivity: float, rates: tuple[int, ...], seed: int, scale: Scale
) -> Result:
    """Measure the response with and without adaptation for each target rate."""
    third, window_s = THIRDS[scale], RISING_WINDOW_S[scale]
    runs = [
        NodesRun(
            WORKERS,
            "auto",
            window_s,
            (RATE,) * (ceil(window_s) + third) + (risen,) * (2 * third),
            cost=cost,
            selectivity=selectivity,
            adapts=adapts,
        )
        for risen in rates
        for adapts in WAYS.values()
    ]
    found = measured_nodes(runs, seed)
    lines = {
        f"to {risen}/s": dict(zip(WAYS, found[place : place + len(WAYS)], strict=True))
        for place, risen in zip(range(0, len(found), len(WAYS)), rates, strict=True)
    }
    claims = tuple(claim for name, ways in lines.items() for claim in _claims(name, ways, third))
    figures = {
        name: {
            way: {
                "response_ms": [round(1000 * s, 1) for s in one.response_s],
                "subtasks at the end": one.subtasks,
                "subtasks that moved": one.moved,
                "CPU of the busiest subtask, of a core": round(one.slowest_cpu_s / len(one.response_s), 3),
            }
            for way, one in ways.items()
        }
        for name, ways in lines.items()
    }
    measured = {
        f"{name}: response of the last third over that before, with adaptation": [
            _last_over_first(ways["with adaptation"].response_s, third)
        ]
        for name, ways in lines.items()
    }
    return Result(claims, {"lines": figures}, measured)


def draw_following(result: Result, path: Path) -> None:
    """Response over time."""
    draw_curves(
        path,
        {
            f"{rate}, {way}": curve(list(range(1, len(one["response_ms"]) + 1)), [one["response_ms"]])
            for rate, ways in result.figures["lines"].items()
            for way, one in ways.items()
        },
        title="On a cluster, more subtasks keep the response",
        x_label="second",
        y_label="time for a second's tuples [ms]",
    )


def _claims(name: str, ways: Mapping[str, MeasuredNodes], third: int) -> tuple[Claim, ...]:
    adapting, fixed = (ways[way] for way in WAYS)
    return (
        equal(f"{name}: results, with adaptation / without", adapting.results / fixed.results, 1),
        timed(
            at_most(
                f"{name}: p99 of the last third / before, with adaptation",
                _high(adapting.response_s[-third:]) / _high(adapting.response_s[:third]),
                2,
                note="Printed: stable. At twice the rate a second has eight times the work. A subtask that "
                f"takes {adapting.slowest_cpu_s / len(adapting.response_s):.2f} of a core is given no others "
                "before it takes half of one, for six seconds.",
            )
        ),
        timed(
            at_least(
                f"{name}: last third, without adaptation / with it",
                sum(fixed.response_s[-third:]) / sum(adapting.response_s[-third:]),
                1,
            )
        ),
    )


def _last_over_first(response_s: Sequence[float], third: int) -> float:
    return sum(response_s[-third:]) / sum(response_s[:third])


def _high(response_s: Sequence[float]) -> float:
    """Return the 99th percentile, which is the maximum of so few values."""
    return max(response_s)
