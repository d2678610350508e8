"""Partition of a chart into segments of its steepest lines (M6), and of a path into Chain's tasks (M7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slicemill_lab.charts.charts import Number, Objective, Path, Sloped, chart


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive pieces `start` to `stop` (exclusive), as one straight line."""

    start: int
    stop: int
    time: Number
    drop: Number


def partition(pieces: Iterable[Sloped]) -> list[Segment]:
    """Return consecutive segments of non-increasing slope. Equal slopes become one segment.

    Each piece is merged with the previous segment while the piece is at least as steep. Every piece is pushed
    and merged at most once, so the time is linear. The result is the same as a search of the steepest line
    from each start.
    """
    done: list[Segment] = []
    for index, piece in enumerate(pieces):
        start, time, drop = index, piece.time, piece.drop
        while done and drop * done[-1].time >= done[-1].drop * time:
            earlier = done.pop()
            start, time, drop = earlier.start, earlier.time + time, earlier.drop + drop
        done.append(Segment(start, index + 1, time, drop))
    return done


def chain(path: Path) -> list[Segment]:
    """Return the tasks of a path for least memory: depth first in a task, steepest ready task first."""
    return partition(chart(path.stages, Objective.MEMORY))
