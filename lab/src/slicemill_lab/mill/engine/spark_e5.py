"""mill-spark-E5: delay of results by idle-waiting on the engine (stream-mill E5, M24-M26).

The lines of mill-E5 on the engine: without enabling timestamps (A), with heartbeats on the sparse stream (B),
on demand (C), and over latent streams (D). Here the engine reads the watermark of a stream that it stamps at
each run, at no cost, so C equals D.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_most, equal
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.engine.union import POLL_US, A, B, C, D, EngineRun, sweep
from slicemill_lab.mill.graphs import E7_RATES
from slicemill_lab.plotting import curve, draw_curves

ETS_RATES: Mapping[Scale, tuple[float, ...]] = {"small": (1, 10, 100), "full": (0.1, 1, 10, 100)}
SECONDS: Mapping[Scale, float] = {"small": 4, "full": 60}


def run(seed: int, scale: Scale) -> Result:
    """Measure the mean response of the four lines."""
    rates = ETS_RATES[scale]
    lines = sweep(E7_RATES, rates, seed, SECONDS[scale])
    response = {name: [one.mean_response_ms for one in runs] for name, runs in lines.items()}
    a, c = response[A][0], response[C][0]
    figures = {"rates": str(E7_RATES), "ets_rates": list(rates), "mean_response_ms": response}
    return Result(_claims(rates, response), figures, {"A over C": [log10(a / c)]})


def plot(result: Result, path: Path) -> None:
    """Response against ETS rate."""
    draw_lines(
        result,
        path,
        "mean_response_ms",
        title="On the engine, on-demand ETS is as quick as no timestamps at all; heartbeats come near",
        y_label="mean response [ms]",
    )


EXPERIMENT = Experiment(
    id="mill-spark-E5",
    title="Response of a union on the engine, under four ways to tell time",
    run=run,
    plot=plot,
    substrate="engine",
    repeats=5,
)


def draw_lines(result: Result, path: Path, figure: str, *, title: str, y_label: str) -> None:
    rates = result.figures["ets_rates"]
    draw_curves(
        path,
        {
            name: curve(rates, [values * (len(rates) // len(values))])
            for name, values in result.figures[figure].items()
        },
        title=title,
        x_label="periodic ETS per second",
        y_label=y_label,
        log_x=True,
        log_y=True,
    )


def of_periodic(runs: list[EngineRun], rates: tuple[float, ...], figure: str) -> dict[str, float]:
    """Return a figure of the runs with heartbeats by rate, the highest rate first."""
    found = {f"{rate:g}/s": float(getattr(one, figure)) for rate, one in zip(rates, runs, strict=True)}
    return dict(reversed(found.items()))


def _claims(rates: tuple[float, ...], response: Mapping[str, list[float]]) -> tuple[Claim, ...]:
    a, c, d = (response[name][0] for name in (A, C, D))
    b = {f"{rate:g}/s": value for rate, value in zip(rates, response[B], strict=True)}
    return (
        ascending("B falls steadily with the ETS rate [ms]", {**dict(reversed(b.items())), "A": a}),
        at_most("C is not above B at any rate [ms]", c, min(b.values())),
        equal("C waits as little as D, where there is no order to keep [ms]", c, d),
        at_most(
            "C waits for the next poll and for nothing else [ms]",
            c,
            POLL_US / 1000,
            note="the least there is: arrivals are looked for every 20 ms",
        ),
    )
