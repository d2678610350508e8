"""Cost of a step in virtual time: fixed, by tuple, or sampled.

A cost is an integer in microseconds, or a function of the tuple and the engine's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from slicemill.types import Row, Timed

TupleCost = int | Callable[[Timed, Random], int]


@dataclass(frozen=True, slots=True)
class StepCost:
    """Cost of a step with a data tuple (`data_us`) and without one (`time_us`)."""

    data_us: TupleCost = 0
    time_us: int = 0


FREE = StepCost()


def constant_cost(cost_us: int) -> StepCost:
    """Return the same cost for every step."""
    return StepCost(cost_us, cost_us)


def per_tuple(cost_us: Callable[[Row], int], time_us: int = 0) -> StepCost:
    """Return a cost that is a function of the tuple's row."""
    return StepCost(lambda tuple_, _random: cost_us(tuple_.row), time_us)


def random_cost(draw: Callable[[Random], float], time_us: int = 0) -> StepCost:
    """Return a cost that is sampled per tuple, in whole microseconds."""
    return StepCost(lambda _tuple, random: max(0, round(draw(random))), time_us)
