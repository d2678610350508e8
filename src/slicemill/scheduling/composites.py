"""Joined tuples and the segments of a join: what to expect of them (P22, P23).

A composite tuple is not charged for waiting for its partner: its slowdown compares with the time at which the
pair would have left an idle system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slicemill.scheduling.policy import Floats
from slicemill.scheduling.segments import SegmentFigures

Numbers = float | Floats


@dataclass(frozen=True, slots=True)
class JoinTimes:
    """Ideal times, every operator once: the two sides before the join, the join itself, what follows it.

    Numbers, or arrays with an entry per pair.
    """

    left: Numbers
    right: Numbers
    join: Numbers
    tail: Numbers

    @property
    def ideal_time(self) -> Numbers:
        """T: both tuples pass their sides and the join, the pair passes what follows."""
        return self.left + self.right + 2 * self.join + self.tail

    def ideal_departure(self, left_arrival: Numbers, right_arrival: Numbers) -> Numbers:
        """When the pair would leave if nothing else were there; of equal arrivals the left goes first."""
        left_first = np.less_equal(left_arrival, right_arrival)
        first_side = np.where(left_first, self.left, self.right)
        second_side = np.where(left_first, self.right, self.left)
        met = np.minimum(left_arrival, right_arrival) + first_side + self.join
        ready = np.maximum(np.maximum(left_arrival, right_arrival), met)
        departure: Numbers = ready + second_side + self.join + self.tail
        return departure

    def slowdown(self, left_arrival: Numbers, right_arrival: Numbers, departure: Numbers) -> Numbers:
        late = departure - self.ideal_departure(left_arrival, right_arrival)
        return 1.0 + late / self.ideal_time


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One input of a window join: expected selectivity and cost up to the join, ideal time, mean gap (τ)."""

    selectivity: float
    cost: float
    ideal_time: float
    gap: float


@dataclass(frozen=True, slots=True)
class Join:
    cost: float
    selectivity: float  # of a pair in the window
    window: float


def virtual_segments(
    left: JoinSide, right: JoinSide, join: Join, tail: SegmentFigures
) -> tuple[SegmentFigures, SegmentFigures]:
    """A join query as two segments of one stream each, for policies that know only such (P23)."""
    ideal_time = float(
        JoinTimes(left.ideal_time, right.ideal_time, join.cost, float(tail.ideal_time)).ideal_time
    )

    def segment(own: JoinSide, other: JoinSide) -> SegmentFigures:
        partners = other.selectivity * join.window / other.gap
        pairs = own.selectivity * join.selectivity * partners
        return SegmentFigures(
            pairs * tail.selectivity,
            own.cost + own.selectivity * join.cost + pairs * tail.cost,
            ideal_time,
        )

    return segment(left, right), segment(right, left)
