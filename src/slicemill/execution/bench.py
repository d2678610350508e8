"""How fast the reference engine runs, in operator steps per second of processor time on one core.

Three loads, each driven by bursts so that the engine is never idle in virtual time: a path of selections, a
fork, and a union with on-demand enabling timestamps. Punctuation counts as a step: it is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from slicemill.execution.costs import fixed
from slicemill.execution.engine import Engine
from slicemill.execution.graph import OperatorSpec, SinkSpec, Spec
from slicemill.execution.nos import Strategy
from slicemill.execution.operator import Row
from slicemill.execution.sources import Arrival, SourceSpec
from slicemill.execution.stateless import Select, Union

BURST = 100
CHUNK_STEPS = 20_000


def simulator(seconds: float) -> dict[str, float]:
    """Steps per second by load, for about this many seconds in all, and the least of them."""
    loads: dict[str, Callable[[], Engine]] = {
        "path, DFS": lambda: _path("DFS"),
        "path, BFS": lambda: _path("BFS"),
        "fork, DFS": _fork,
        "union, DFS, on-demand ETS": _union,
    }
    rates = {name: _steps_per_second(make(), seconds / len(loads)) for name, make in loads.items()}
    return {**rates, "least": min(rates.values())}


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
    return OperatorSpec(name, Select(_passes), (producer,), fixed(1))


def _path(strategy: Strategy) -> Engine:
    names = ["S", "a", "b", "c", "d"]
    operators: list[Spec] = [_select(after, before) for before, after in pairwise(names)]
    engine = Engine([SourceSpec("S"), *operators, SinkSpec("out", "d", keep=False)], strategy=strategy)
    engine.feed("S", _bursts(4 * BURST))
    return engine


def _fork() -> Engine:
    branches: list[Spec] = [_select("b", "a"), _select("c", "a"), _select("d", "a")]
    sinks: list[Spec] = [SinkSpec(f"{name} out", name, keep=False) for name in ("b", "c", "d")]
    engine = Engine([SourceSpec("S"), _select("a", "S"), *branches, *sinks])
    engine.feed("S", _bursts(4 * BURST))
    return engine


def _union() -> Engine:
    nodes: list[Spec] = [SourceSpec("S"), SourceSpec("T"), _select("a", "S"), _select("b", "T")]
    union = OperatorSpec("u", Union(), ("a", "b"), fixed(1))
    engine = Engine([*nodes, union, _select("c", "u"), SinkSpec("out", "c", keep=False)])
    engine.feed("S", _bursts(4 * BURST))
    return engine
