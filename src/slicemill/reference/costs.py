"""What a step costs in virtual time: fixed, by the tuple, or sampled.

A cost is whole microseconds, or a function of the tuple and the engine's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from slicemill.rows import Row, Timed

TupleCost = int | Callable[[Timed, Random], int]


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of a step on a data tuple, and of one that only moves time: a punctuation or a register."""

    data_us: TupleCost = 0
    time_us: int = 0


FREE = StepCost()


def fixed(cost_us: int) -> StepCost:
    """The same for every step."""
    return StepCost(cost_us, cost_us)


def per_tuple(cost_us: Callable[[Row], int], time_us: int = 0) -> StepCost:
    """Computed from the tuple's row."""
    return StepCost(lambda tuple_, _random: cost_us(tuple_.row), time_us)


def sampled(draw: Callable[[Random], float], time_us: int = 0) -> StepCost:
    """Drawn anew for each tuple, rounded to microseconds, never negative."""
    return StepCost(lambda _tuple, random: max(0, round(draw(random))), time_us)
