"""Benchmark of the reference engine and the scheduling simulator, in operator steps per CPU second.

The loads of the engine are bursts, so that it is never idle in virtual time: a path of selections, a fork,
and a union
with on-demand enabling timestamps. Processing a punctuation counts as a step. The scheduling loop simulates
500 queries
of three operators, compiled with static priorities, and in Python with round robin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from slicemill.types import Row
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import cut
from slicemill_lab.claims import at_least, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.workload import Load, draw
from slicemill_oracle.costs import constant_cost
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, SinkSpec, Spec
from slicemill_oracle.nos import Strategy
from slicemill_oracle.operators.stateless import Select, Union
from slicemill_oracle.sources import Arrival, ScheduledSource

TARGET = 200_000
QUERIES = 500
BURST = 100
CHUNK_STEPS = 20_000


def run(scale: Scale) -> Result:
    engine = engine_rates(4.0 if scale == "small" else 40.0)
    loop = loop_rates(20_000 if scale == "small" else 400_000)
    claims = (
        timed(at_least("reference engine, steps per CPU second, slowest load", min(engine.values()), TARGET)),
        timed(
            at_least(
                "scheduling loop of 500 queries, steps per CPU second, priorities",
                loop["component"],
                TARGET,
                "round robin is played in Python, not compiled; see the figures",
            )
        ),
    )
    return Result(claims, {"engine": engine, "loop": loop, "unit": "operator steps per CPU second, one core"})


def loop_rates(tuples: int) -> dict[str, float]:
    """Return steps per second of the scheduling loop by policy, over `tuples` tuples in all."""
    paths = [Path(f"q{i}", tuple(Stage(f"o{k}", 1, 1) for k in range(3))) for i in range(QUERIES)]
    arrivals = [float(n * 3 * QUERIES) for n in range(tuples // QUERIES)]
    work = draw([Load(path, arrivals) for path in paths], seed=1)
    tasks = cut(paths, "operator", Objective.OUTPUT_RESPONSE)
    rates = {}
    for name in ("component", "rr-k"):
        # A first small run compiles the code.
        simulate(draw([Load(path, [0.0]) for path in paths], seed=1), tasks, make(name, tasks.tasks))
        began = time.process_time()
        simulate(work, tasks, make(name, tasks.tasks))
        rates[name] = work.steps / (time.process_time() - began)
    return rates


def engine_rates(seconds: float) -> dict[str, float]:
    """Return steps per second of the reference engine by load, measured for about `seconds` in all."""
    loads: dict[str, Callable[[], Engine]] = {
        "path, DFS": lambda: _path("DFS"),
        "path, BFS": lambda: _path("BFS"),
        "fork, DFS": _fork,
        "union, DFS, on-demand ETS": _union,
    }
    return {name: _steps_per_second(start(), seconds / len(loads)) for name, start in loads.items()}


def _steps_per_second(engine: Engine, seconds: float) -> float:
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
        engine.step(CHUNK_STEPS)
    return engine.steps / spent


def _bursts(period_us: int) -> Iterator[Arrival]:
    at = 0
    while True:
        for number in range(BURST):
            yield Arrival(at, (number,))
        at += period_us


def _passes(row: Row) -> bool:
    return row[0] != 0


def _select(name: str, producer: str) -> OperatorSpec:
    return OperatorSpec(name, Select(_passes), (producer,), constant_cost(1))


def _path(strategy: Strategy) -> Engine:
    names = ["S", "a", "b", "c", "d"]
    operators: list[Spec] = [_select(after, before) for before, after in pairwise(names)]
    engine = Engine([ScheduledSource("S"), *operators, SinkSpec("out", "d", keep=False)], strategy=strategy)
    engine.feed("S", _bursts(4 * BURST))
    return engine


def _fork() -> Engine:
    branches: list[Spec] = [_select("b", "a"), _select("c", "a"), _select("d", "a")]
    sinks: list[Spec] = [SinkSpec(f"{name} out", name, keep=False) for name in ("b", "c", "d")]
    engine = Engine([ScheduledSource("S"), _select("a", "S"), *branches, *sinks])
    engine.feed("S", _bursts(4 * BURST))
    return engine


def _union() -> Engine:
    nodes: list[Spec] = [ScheduledSource("S"), ScheduledSource("T"), _select("a", "S"), _select("b", "T")]
    union = OperatorSpec("u", Union(), ("a", "b"), constant_cost(1))
    engine = Engine([*nodes, union, _select("c", "u"), SinkSpec("out", "c", keep=False)])
    engine.feed("S", _bursts(4 * BURST))
    return engine


BENCHMARK = Benchmark("operator steps in virtual time", run)
