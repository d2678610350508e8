"""Cuts a chart into the segments of its steepest lines (M6), and a path into Chain's units (M7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slicemill_lab.charts.charts import Number, Objective, Path, Sloped, chart


@dataclass(frozen=True, slots=True)
class Segment:
    """The consecutive pieces `start` to `stop` (exclusive), as one straight line."""

    start: int
    stop: int
    time: Number
    drop: Number


def partition(pieces: Iterable[Sloped]) -> list[Segment]:
    """Consecutive segments of non-increasing slope; equal slopes become one segment.

    Each piece joins the segment before it for as long as it is at least as steep, so every piece is pushed
    and merged at most once: linear time, and the same result as searching the steepest line from each start.
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
    """The path's units for least memory: depth first inside a unit, the steepest unit with input first."""
    return partition(chart(path.stages, Objective.MEMORY))
