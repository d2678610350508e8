"""Cuts paths into the tasks that a policy schedules (P10's levels, M7's partitions).

Every level cuts a path into runs of consecutive operators: the whole path (query level), single operators
(operator level), or the partitions of Chain. A chosen task takes one tuple from the queue of its head
operator and processes it, depth first, to the end of its run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slicemill_lab.charts.charts import Objective, Path, chart, merged
from slicemill_lab.charts.partition import chain
from slicemill_lab.charts.segments import derive
from slicemill_lab.policies.policy import SimulatedTask

Level = Literal["query", "operator", "chain"]


@dataclass(frozen=True, slots=True)
class Span:
    """Stages `start` to `stop` (exclusive) of a path, given by its position."""

    path: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Tasks of a set of paths, with their spans in the same order."""

    objective: Objective
    tasks: tuple[SimulatedTask, ...]
    spans: tuple[Span, ...]


def cut(paths: Sequence[Path], level: Level, objective: Objective) -> Cut:
    """Cut every path at a level. The charts of the tasks follow the objective."""
    spans = tuple(
        Span(number, start, stop) for number, path in enumerate(paths) for start, stop in _RUNS[level](path)
    )
    return Cut(objective, tuple(_task(paths[span.path], span, objective) for span in spans), spans)


def _task(path: Path, span: Span, objective: Objective) -> SimulatedTask:
    stages = path.stages[span.start : span.stop]
    delivers = span.stop == len(path.stages)
    return SimulatedTask(
        name=f"{path.name}:{'+'.join(stage.name for stage in stages)}",
        piece=merged(chart(stages, objective, delivers=delivers, weight=path.weight)),
        segment=derive(path.stages)[span.start],
        weight=float(path.weight),
    )


_RUNS: Mapping[Level, Callable[[Path], list[tuple[int, int]]]] = {
    "query": lambda path: [(0, len(path.stages))],
    "operator": lambda path: [(place, place + 1) for place in range(len(path.stages))],
    "chain": lambda path: [(segment.start, segment.stop) for segment in chain(path)],
}
