"""mill-E9: burstiness of the output after a slide aggregate (stream-mill E9, M21, M34).

The query of mill-E8. Tuples of the third stream may leave only up to the aggregate's time. Without enabling
timestamps that is the time of its last result, so the tuples leave in bursts as long as a slide. With
on-demand ETS they leave as they arrive. Burstiness is (max - min) / mean of the outputs per 0.02 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from slicemill_lab.claims import Claim, ascending, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.graphs import SECOND_US, poisson, slide_query
from slicemill_lab.plotting import curve, draw_curves
from slicemill_oracle.ets import EtsMode, NoEts, OnDemand
from slicemill_oracle.metrics import burstiness, outputs_per_interval

SECONDS: Mapping[Scale, float] = {"small": 3, "full": 60}
PER_SECOND = {"S1": 250, "S2": 250, "S3": 1000}
SLIDES = (1, 20, 50, 100)
INTERVAL_US = 20_000
WARM_UP_US = 500_000
MODES: Mapping[str, EtsMode] = {"A no ETS": NoEts(), "B on-demand ETS": OnDemand()}


def run(seed: int, scale: Scale) -> Result:
    """Measure burstiness by slide and mode, and that of the arrivals."""
    until_us = round(SECONDS[scale] * SECOND_US)
    lines = {
        name: [_burstiness(slide, mode, seed, until_us) for slide in SLIDES] for name, mode in MODES.items()
    }
    arrived = [arrival.at for arrival in poisson(_random("S3", seed), PER_SECOND["S3"], until_us)]
    of_arrivals = burstiness(outputs_per_interval(arrived, WARM_UP_US, until_us, INTERVAL_US))
    figures = {"slides": list(SLIDES), "burstiness": lines, "of_arrivals": of_arrivals}
    return Result(_claims(lines, of_arrivals), figures)


def plot(result: Result, path: Path) -> None:
    """Burstiness against slide."""
    draw_curves(
        path,
        {name: curve(SLIDES, [line]) for name, line in result.figures["burstiness"].items()},
        title="A longer slide makes the output burstier, unless time is told on demand",
        x_label="SLIDE [rows]",
        y_label="(max - min) / mean of outputs per 0.02 s",
    )


EXPERIMENT = Experiment(
    id="mill-E9",
    title="Burstiness behind a slide aggregate, without and with on-demand ETS",
    run=run,
    plot=plot,
)


def _claims(lines: Mapping[str, list[float]], of_arrivals: float) -> tuple[Claim, ...]:
    a = {f"slide {slide}": value for slide, value in zip(SLIDES, lines["A no ETS"], strict=True)}
    b = lines["B on-demand ETS"]
    return (
        ascending("A: burstiness rises significantly with the slide", a),
        near(
            "B: no burstiness but that of the arrivals: mean over the slides, over theirs",
            sum(b) / len(b) / of_arrivals,
            1,
            note=f"Poisson arrivals have a burstiness of {of_arrivals:.2f} themselves.",
        ),
        ascending(
            "the slide matters less to B than to A: burstiness at the longest over the shortest",
            {"B": b[-1] / b[0], "A": lines["A no ETS"][-1] / lines["A no ETS"][0]},
        ),
    )


def _random(source: str, seed: int) -> Random:
    return Random(f"{source} {seed}")


def _burstiness(slide: int, mode: EtsMode, seed: int, until_us: int) -> float:
    engine = slide_query(1, slide, mode, "punctuation", seed)
    for source, rate in PER_SECOND.items():
        engine.feed(source, poisson(_random(source, seed), rate, until_us))
    engine.run_until(until_us)
    delivered = engine.sink("out").delivered_at
    return burstiness(outputs_per_interval(delivered, WARM_UP_US, until_us, INTERVAL_US))
