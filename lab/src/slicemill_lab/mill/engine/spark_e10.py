"""mill-spark-E10: cost of an average on the engine, in four implementations (stream-mill E10, M32, M38).

The aggregates of mill-E10: with EXPIRE in ESL (A) and in Python (B), without EXPIRE (C), and computed anew
(D). On the engine, ESL is compiled and Python is not. The cost of a tuple is CPU time of the worker, so
claims about it are `timed`. The size of the state, and the equality of results, are counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from slicemill_lab.claims import Claim, ascending, at_most, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e10 import ESL, A, B, C, D
from slicemill_lab.mill.engine.windows import EngineCost, cost
from slicemill_lab.plotting import curve, draw_curves

WINDOWS: Mapping[Scale, tuple[int, ...]] = {"small": (100, 1_000), "full": (100, 1_000, 10_000)}
MEASURED: Mapping[Scale, int] = {"small": 1_000, "full": 5_000}
WARM_UP = 1_000
CALLS = {A: "a(v) OVER ({rows})", B: "b(v) OVER ({rows})", C: "c(v, n, {size})", D: "d(v) OVER ({rows})"}


def run(seed: int, scale: Scale) -> Result:
    """Measure CPU time and state by implementation and window."""
    random = Random(seed)
    windows, measured = WINDOWS[scale], MEASURED[scale]
    values = [random.uniform(0, 1000) for _ in range(max(windows) + measured + WARM_UP)]
    return four_ways(ESL, values, windows, measured, "averages")


def four_ways(
    esl: str, values: Sequence[float], windows: tuple[int, ...], measured: int, what: str
) -> Result:
    """Return the result of an experiment with aggregates named a, b, c and d."""
    costs = {
        way: [
            cost(
                esl,
                call.format(rows=f"ROWS {size - 1} PRECEDING", size=size),
                values[: size + measured + WARM_UP],
                measured,
            )
            for size in windows
        ]
        for way, call in CALLS.items()
    }
    figures = {
        "windows": list(windows),
        "us_per_tuple": {way: [one.us for one in line] for way, line in costs.items()},
        "state_bytes": {way: [one.state_bytes for one in line] for way, line in costs.items()},
    }
    slower = [100 * (a.us / b.us - 1) for a, b in zip(costs[A], costs[B], strict=True)]
    return Result(_claims(windows, costs, what), figures, {"A slower than B": [sum(slower) / len(slower)]})


def plot(result: Result, path: Path) -> None:
    """Plot CPU time against the window."""
    windows = result.figures["windows"]
    draw_curves(
        path,
        {way: curve(windows, [line]) for way, line in result.figures["us_per_tuple"].items()},
        title="On the engine, too, a tuple costs the same with EXPIRE however long the window is",
        x_label="window [rows]",
        y_label="processor time of a tuple [µs]",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-spark-E10",
    title="An average over a window on the engine, in four ways",
    run=run,
    plot=plot,
    substrate="engine",
    repeats=5,
)


def _claims(windows: tuple[int, ...], costs: Mapping[str, list[EngineCost]], what: str) -> tuple[Claim, ...]:
    grown = {way: line[-1].us / line[0].us for way, line in costs.items()}
    longest = {way: line[-1].us for way, line in costs.items()}
    kept = {f"{size} rows": float(one.state_bytes) for size, one in zip(windows, costs[A], strict=True)}
    return (
        at_most(f"all give the same {what}: greatest difference", _difference(costs), 1e-6),
        ascending("what A keeps grows with the window [bytes]", kept),
        timed(ascending("with the window, D grows more than A", {way: grown[way] for way in (A, D)})),
        timed(ascending("… and more than B", {way: grown[way] for way in (B, D)})),
        timed(ascending("C is slower than A in the longest window [µs]", {w: longest[w] for w in (A, C)})),
        timed(
            ascending(
                "A is quicker than B in the longest window [µs]",
                {way: longest[way] for way in (A, B)},
                note="Printed: 10 to 20 % slower, against C. Here A is compiled, and B is Python.",
            )
        ),
    )


def _difference(costs: Mapping[str, list[EngineCost]]) -> float:
    """Return the greatest difference between results of two implementations for the same tuple."""
    greatest = 0.0
    for same in zip(*costs.values(), strict=True):
        for answers in zip(*(one.answers for one in same), strict=True):
            greatest = max(greatest, max(answers) - min(answers))
    return greatest
