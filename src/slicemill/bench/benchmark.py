"""What a benchmark is, and finding one by the name of its module."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import slicemill.bench
from slicemill.errors import SlicemillError
from slicemill.esl.errors import did_you_mean
from slicemill.lab.experiment import Result, Scale

_HELPERS = (
    "benchmark",
    "bids",
    "coalesce_rivals",
    "events",
    "latency",
    "panes_kept",
    "policy_load",
    "policy_overhead",
    "process_tree",
    "rivals",
    "uda_on_spark",
    "waiting",
    "window_rivals",
)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`run` says how it measured in its figures, and claims what must hold."""

    title: str
    run: Callable[[Scale], Result]


def names() -> list[str]:
    return [m.name for m in pkgutil.iter_modules(slicemill.bench.__path__) if m.name not in _HELPERS]


def load(name: str) -> Benchmark:
    if name not in names():
        hint = did_you_mean(name, names()) or f"there are {', '.join(names())}"
        raise SlicemillError(f"there is no benchmark {name}; {hint}")
    benchmark: Benchmark = import_module(f"{slicemill.bench.__name__}.{name}").BENCHMARK
    return benchmark
