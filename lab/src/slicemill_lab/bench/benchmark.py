"""Definition of a benchmark, and lookup by module name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from rich.table import Table

from slicemill.errors import SlicemillError, did_you_mean
from slicemill_lab.experiment import Result, Scale

NAMES = (
    "backfill",
    "checkpoints",
    "coalesce",
    "fallbacks",
    "follow",
    "ingest",
    "join",
    "latency",
    "many",
    "mixed",
    "model",
    "nexmark",
    "over",
    "pacing",
    "policies",
    "scale",
    "serve",
    "shed",
    "simulator",
    "startup",
    "uda",
    "windows",
)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Benchmark.

    The figures of `run` describe the method; its claims must hold. `tables` prints some figures.
    """

    title: str
    run: Callable[[Scale], Result]
    tables: Callable[[Result], Sequence[Table]] = lambda _: ()


def load(name: str) -> Benchmark:
    if name not in NAMES:
        hint = did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}"
        raise SlicemillError(f"there is no benchmark {name}; {hint}")
    benchmark: Benchmark = import_module(f"slicemill_lab.bench.{name}").BENCHMARK
    return benchmark
