"""mill-E8: savings of enabling timestamps that jump over operators (stream-mill E8, M22, M23, X11).

The query has three streams, two unions and a slide aggregate, with a growing number of projections after each
union. An on-demand ETS travels as a punctuation through every operator, or over the ETS arcs of the enhanced
graph, from one operator that waits for time to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.graphs import SECOND_US, poisson, slide_query
from slicemill_lab.plotting import curve, draw_curves
from slicemill_oracle.ets import NoEts, OnDemand, Propagation

SECONDS: Mapping[Scale, float] = {"small": 4, "full": 100}
PER_SECOND = {"S1": 100, "S2": 10, "S3": 100}
PROJECTIONS = (0, 1, 2, 4, 8)
SLIDE = 5
WAYS: tuple[Propagation, ...] = ("arcs", "punctuation")
PRINTED_PERCENT = 14


def run(seed: int, scale: Scale) -> Result:
    """Measure the mean latency by graph size and propagation of time, and without ETS."""
    seconds = SECONDS[scale]
    latency = {way: [_latency_ms(size, way, seed, seconds, True) for size in PROJECTIONS] for way in WAYS}
    without = _latency_ms(PROJECTIONS[0], "punctuation", seed, seconds, False)
    excess = {
        size: 100 * (slow / fast - 1)
        for size, slow, fast in zip(PROJECTIONS, latency["punctuation"], latency["arcs"], strict=True)
    }
    figures = {
        "projections_per_union": list(PROJECTIONS),
        "mean_latency_ms": latency,
        "without_ets_ms": without,
        "punctuation_excess_percent": {str(size): value for size, value in excess.items()},
    }
    measured = {"the smallest graph: punctuation against arcs": [excess[PROJECTIONS[0]] / 100]}
    return Result(_claims(latency, without, excess), figures, measured)


def plot(result: Result, path: Path) -> None:
    """Latency against graph size."""
    draw_curves(
        path,
        {way: curve(PROJECTIONS, [result.figures["mean_latency_ms"][way]]) for way in WAYS},
        title="The more operators do not care about time, the more it saves to jump over them",
        x_label="projections after each union",
        y_label="mean latency [ms]",
    )


EXPERIMENT = Experiment(
    id="mill-E8", title="On-demand ETS as punctuation and over ETS arcs", run=run, plot=plot, repeats=5
)


def _claims(
    latency: Mapping[Propagation, list[float]], without: float, excess: Mapping[int, float]
) -> tuple[Claim, ...]:
    return (
        *(
            ascending(f"{way}: idle-waiting is gone [ms]", {way: line[0], "without ETS": without})
            for way, line in latency.items()
        ),
        at_least(
            "punctuation has the higher latency at every graph size: least excess [%]",
            min(excess.values()),
            0,
            note=f"Printed: {PRINTED_PERCENT} % higher, on a graph and at step costs that are lost. Here it "
            f"is {min(excess.values()):.0f} % on the smallest graph and {max(excess.values()):.0f} % on the "
            "largest: how much depends on what a step costs, that it is more does not.",
        ),
        ascending(
            "the gap grows with the graph and its share of operators that do not wait for time [%]",
            {f"{size} projections": value for size, value in excess.items()},
        ),
    )


def _latency_ms(projections: int, way: Propagation, seed: int, seconds: float, on_demand: bool) -> float:
    until_us = round(seconds * SECOND_US)
    engine = slide_query(projections, SLIDE, OnDemand() if on_demand else NoEts(), way, seed)
    for source, rate in PER_SECOND.items():
        engine.feed(source, poisson(Random(f"{source} {seed}"), rate, until_us))
    engine.run_until(until_us)
    return engine.metrics().latency["out"].mean_us / 1000
