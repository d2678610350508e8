"""Query graphs, arrivals and sweeps of the execution experiments mill-E3 to mill-E9.

Every step on a tuple costs 10 µs, and every step that only advances time 5 µs, in virtual time. The published
machine is not available, so orders, signs and ratios are compared, not milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random

from slicemill.types import Row, Timed
from slicemill_oracle.costs import StepCost
from slicemill_oracle.engine import Engine
from slicemill_oracle.ets import EtsMode, Kind, NoEts, OnDemand, Periodic, Propagation
from slicemill_oracle.graph import OperatorSpec, SinkSpec, Spec
from slicemill_oracle.nos import Strategy
from slicemill_oracle.operators.stateless import ProjectOperator, Select, Union
from slicemill_oracle.sources import Arrival, ScheduledSource

SECOND_US = 1_000_000
STEP = StepCost(data_us=10, time_us=5)
PASSING = 0.95


@dataclass(frozen=True, slots=True)
class Rates:
    """Tuples per second on the busy and on the sparse stream of the union query (X10)."""

    busy: float
    sparse: float

    def __str__(self) -> str:
        return f"{self.busy:g} and {self.sparse:g} t/s"


E3_RATES = Rates(1000, 0.5)
E7_RATES = Rates(50, 0.05)


@dataclass(frozen=True, slots=True)
class GraphRun:
    """Measurements of one run of the union query."""

    mean_latency_ms: float
    idle_percent: float
    peak_items: int


class SlideSum:
    """Aggregate that emits the sum of each `slide` rows with the last of them.

    The thesis counts every aggregate with a slide as an operator that waits for time (M21): between two
    results, only an enabling timestamp informs its consumers of the progress of time.
    """

    inputs = 1
    waits_for_time = True

    def __init__(self, slide: int) -> None:
        self._slide = slide
        self._rows: list[float] = []

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._rows.append(float(str(tuple_.row[0])))
        if len(self._rows) < self._slide:
            return ()
        total = sum(self._rows)
        self._rows.clear()
        return (Timed(tuple_.ts, (total,)),)

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()


def poisson(random: Random, per_second: float, until_us: int) -> Iterator[Arrival]:
    """Yield random arrivals, each with a number from 0 to 1 for selections."""
    at = 0.0
    while (at := at + random.expovariate(per_second) * SECOND_US) < until_us:
        yield Arrival(int(at), (random.random(),))


def selection(name: str, producer: str) -> OperatorSpec:
    return OperatorSpec(name, Select(_passes), (producer,), STEP)


def union_query(
    strategy: Strategy = "DFS", ets: EtsMode | None = None, kind: Kind = "internal", seed: int = 0
) -> Engine:
    """Return the union of two streams after selections (E3)."""
    nodes: list[Spec] = [
        ScheduledSource("busy", kind),
        ScheduledSource("sparse", kind),
        selection("σ busy", "busy"),
        selection("σ sparse", "sparse"),
        OperatorSpec("union", Union(), ("σ busy", "σ sparse"), STEP),
        SinkSpec("out", "union", keep=False),
    ]
    return Engine(nodes, strategy=strategy, ets=ets, seed=seed)


def slide_query(fillers: int, slide: int, ets: EtsMode, propagation: Propagation, seed: int) -> Engine:
    """Return three streams, two unions and a slide aggregate (X11).

    There are `fillers` projections after each union.
    """
    nodes: list[Spec] = []
    for number in (1, 2, 3):
        nodes += [ScheduledSource(f"S{number}"), selection(f"σ{number}", f"S{number}")]
    nodes.append(OperatorSpec("U1", Union(), ("σ1", "σ2"), STEP))
    nodes += _projections("π", "U1", fillers)
    nodes.append(OperatorSpec("Σ", SlideSum(slide), (f"π{fillers}" if fillers else "U1",), STEP))
    nodes.append(OperatorSpec("U2", Union(), ("Σ", "σ3"), STEP))
    nodes += _projections("ρ", "U2", fillers)
    nodes.append(SinkSpec("out", f"ρ{fillers}" if fillers else "U2"))
    return Engine(nodes, ets=ets, propagation=propagation, seed=seed)


def run_union(rates: Rates, engine: Engine, seed: int, seconds: float) -> GraphRun:
    """Feed the union query and measure it. The arrivals depend on rates and seed only."""
    until_us = round(seconds * SECOND_US)
    engine.feed("busy", poisson(Random(f"busy {seed}"), rates.busy, until_us))
    engine.feed("sparse", poisson(Random(f"sparse {seed}"), rates.sparse, until_us))
    engine.run_until(until_us)
    metrics = engine.metrics()
    return GraphRun(
        mean_latency_ms=metrics.latency["out"].mean_us / 1000,
        idle_percent=100 * metrics.idle_share.get("union", 0.0),
        peak_items=metrics.peak_items,
    )


@cache
def sweep(rates: Rates, ets_rates: tuple[float, ...], seed: int, seconds: float) -> dict[str, list[GraphRun]]:
    """Run the lines A no ETS, B periodic at each rate, C on demand, D latent (E5-E7).

    Only B has several runs.
    """
    periodic = [Periodic(round(SECOND_US / rate), ("sparse",)) for rate in ets_rates]
    return {
        "A no ETS": [run_union(rates, union_query(ets=NoEts()), seed, seconds)],
        "B periodic ETS": [run_union(rates, union_query(ets=ets), seed, seconds) for ets in periodic],
        "C on-demand ETS": [run_union(rates, union_query(ets=OnDemand()), seed, seconds)],
        "D latent": [run_union(rates, union_query(ets=NoEts(), kind="latent"), seed, seconds)],
    }


def _passes(row: Row) -> bool:
    return float(str(row[0])) < PASSING


def _projections(name: str, producer: str, count: int) -> list[Spec]:
    names = [producer, *(f"{name}{number}" for number in range(1, count + 1))]
    return [
        OperatorSpec(after, ProjectOperator(lambda row: row), (before,), STEP)
        for before, after in pairwise(names)
    ]
