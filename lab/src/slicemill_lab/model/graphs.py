"""Runs of model graphs over sliding windows, with counts of their work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from slicemill.extensions.models.canonical_graphs import blocking_graph, incremental_graph
from slicemill.extensions.models.graph import ModelGraph
from slicemill.extensions.models.model import Model
from slicemill_lab.model.reference.interpret import Instance, Work, run

WAYS = {"blocking": blocking_graph, "incremental": incremental_graph}


@dataclass(frozen=True, slots=True)
class Slides:
    """Result of some slides: values, calls per slide by kind, and microseconds per slide."""

    values: list[object]
    transforms: float
    calls: float
    us: float


def slides(graph: ModelGraph, window: Sequence[object], steps: Sequence[Sequence[object]]) -> Slides:
    """Slide by the elements of each step, after the initial window, whose work is not counted."""
    work = Work()
    instances = iter([Instance(tuple(window)), *(Instance(tuple(new), len(new)) for new in steps)])
    running = run(graph, instances, work)
    values = [next(running)]
    work.transforms = work.combinations = work.inverses = 0
    began = perf_counter()
    values += list(running)
    seconds = perf_counter() - began
    return Slides(values, work.transforms / len(steps), work.calls / len(steps), 1e6 * seconds / len(steps))


def elements(model: Model, count: int, seed: int) -> list[object]:
    """Return random elements for a model: numbers, or tuples of numbers."""
    random = np.random.default_rng(seed)
    rows = random.integers(-50, 50, (count, len(model.parameters))).tolist()
    return [row[0] if len(row) == 1 else tuple(row) for row in rows]
