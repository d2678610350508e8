"""mill-E4: latency under bursts, depth first and breadth first (stream-mill E4, M5, golden G8).

The union query with on-demand ETS. Tuples of the busy stream arrive in bursts, a microsecond apart, at a
constant mean rate. For latent streams and a step of cost c, a burst of n has a mean latency of (n+1)c under
DFS and (1.5n+0.5)c under BFS, so the ratio tends to 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from slicemill_lab.claims import Claim, ascending, equal, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.graphs import E3_RATES, SECOND_US, poisson, union_query
from slicemill_lab.plotting import curve, draw_curves
from slicemill_oracle.engine import Engine
from slicemill_oracle.ets import NoEts
from slicemill_oracle.nos import Strategy
from slicemill_oracle.sources import Arrival

SECONDS: Mapping[Scale, float] = {"small": 4, "full": 60}
BURSTS = (1, 10, 30, 100)
STRATEGIES: tuple[Strategy, ...] = ("DFS", "BFS")
STEP_MS = 0.01


def run(seed: int, scale: Scale) -> Result:
    """Mean latency against burst size, measured and for one burst of latent tuples."""
    until_us = round(SECONDS[scale] * SECOND_US)
    measured = {s: [_latency_ms(s, size, seed, until_us) for size in BURSTS] for s in STRATEGIES}
    latent = {s: [_latent_ms(s, size) for size in BURSTS] for s in STRATEGIES}
    figures = {"burst_sizes": list(BURSTS), "mean_latency_ms": measured, "latent_ms": latent}
    ratio = measured["BFS"][-1] / measured["DFS"][-1]
    return Result(_claims(measured, latent), figures, {f"bursts of {BURSTS[-1]}: BFS over DFS": [ratio]})


def plot(result: Result, path: Path) -> None:
    """Latency against burst size."""
    draw_curves(
        path,
        {name: curve(BURSTS, [line]) for name, line in result.figures["mean_latency_ms"].items()},
        title="Latency grows with the burst, and half as fast again under BFS",
        x_label="tuples in a burst",
        y_label="mean latency [ms]",
    )


EXPERIMENT = Experiment(
    id="mill-E4", title="Latency of a union under bursts, DFS and BFS", run=run, plot=plot, repeats=5
)


def _claims(
    measured: Mapping[Strategy, list[float]], latent: Mapping[Strategy, list[float]]
) -> tuple[Claim, ...]:
    rise = {s: line[-1] - line[0] for s, line in measured.items()}
    size = BURSTS[-1]
    return (
        *(
            ascending(
                f"{s}: latency rises with burst size [ms]",
                {f"{n} tuples": value for n, value in zip(BURSTS, line, strict=True)},
            )
            for s, line in measured.items()
        ),
        ascending("BFS rises more steeply: the rises [ms]", {s: rise[s] for s in STRATEGIES}),
        near(f"BFS / DFS tends to 1.5: at bursts of {size}", measured["BFS"][-1] / measured["DFS"][-1], 1.5),
        equal(f"latent DFS over (n+1)c at n = {size}", latent["DFS"][-1] / ((size + 1) * STEP_MS), 1),
        equal(
            f"latent BFS over (1.5n+0.5)c at n = {size}",
            latent["BFS"][-1] / ((1.5 * size + 0.5) * STEP_MS),
            1,
        ),
    )


def _latency_ms(strategy: Strategy, size: int, seed: int, until_us: int) -> float:
    engine = union_query(strategy)
    engine.feed("busy", _bursts(Random(f"busy {seed}"), size, until_us))
    engine.feed("sparse", poisson(Random(f"sparse {seed}"), E3_RATES.sparse, until_us))
    engine.run_until(until_us)
    return _mean_ms(engine)


def _latent_ms(strategy: Strategy, size: int) -> float:
    engine = union_query(strategy, NoEts(), "latent")
    engine.feed("busy", [Arrival(0, (0.0,))] * size)
    engine.run_until_idle()
    return _mean_ms(engine)


def _mean_ms(engine: Engine) -> float:
    return engine.metrics().latency["out"].mean_us / 1000


def _bursts(random: Random, size: int, until_us: int) -> Iterator[Arrival]:
    free_from = 0
    for first in poisson(random, E3_RATES.busy / size, until_us):
        start = max(first.at, free_from)
        free_from = start + size
        for offset in range(size):
            yield Arrival(start + offset, (random.random(),))
