"""Derived figures of operator segments: global selectivity, expected cost, ideal time (P2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slicemill_lab.charts.charts import Number, Stage


@dataclass(frozen=True, slots=True)
class SegmentFigures:
    """Expected figures of a tuple at the head of a segment, up to the root of its query."""

    selectivity: Number
    """S: outputs per tuple."""
    cost: Number
    """C̄: expected time per tuple, with selectivities of filters."""
    ideal_time: Number
    """T: time of a tuple that passes every operator of the whole query, including the leaf."""


class _Tail(NamedTuple):
    selectivity: Number
    cost: Number


def derive(stages: Sequence[Stage]) -> list[SegmentFigures]:
    """Return the figures of the segments from each stage to the root, in one pass from right to left."""
    tails: list[_Tail] = []
    tail = _Tail(1, 0)
    for stage in reversed(stages):
        tail = _Tail(stage.selectivity * tail.selectivity, stage.time + stage.selectivity * tail.cost)
        tails.append(tail)
    ideal_time: Number = sum(stage.time for stage in stages)
    return [SegmentFigures(tail.selectivity, tail.cost, ideal_time) for tail in reversed(tails)]


def rate(segment: SegmentFigures) -> float:
    """Return the global output rate of a segment: expected results per processing time (P12)."""
    return float(segment.selectivity) / float(segment.cost)
