"""Aggregate instants with deadlines: EDF, highest rate, and the hybrid of both (P24, P25).

The end of a window is the deadline of its result. EDF meets every deadline while the load can be met, and
falls over when it cannot; highest rate is best once all deadlines have passed. The hybrid asks of each
instant whether it can still be in time, and needs no parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.policies import hybrid

_late: Any = njit(cache=True)(hybrid.late)


@dataclass(frozen=True, slots=True)
class Instant:
    """A result that is due: the work left for it (C) and its deadline (D)."""

    cost: float
    deadline: float


class DeadlineRule(IntEnum):
    """Which instant is next."""

    EDF = 0
    """The earliest deadline."""
    HIGHEST_RATE = 1
    """One result per instant, so the least work (A19)."""
    HYBRID = 2
    """By deadline among those in time; a late one goes first if it is done by the first deadline of those."""


@njit(cache=True)
def choose_instant(rule: int, costs: Floats, deadlines: Floats, now: float) -> int:
    """The position of the next instant, -1 if there is none; where the cost is not a number there is none."""
    timely = late = -1
    for i in range(len(costs)):
        if np.isnan(costs[i]):
            continue
        in_time = rule == DeadlineRule.EDF or (
            rule == DeadlineRule.HYBRID and not _late(costs[i], deadlines[i] - now)
        )
        if in_time and (timely < 0 or deadlines[i] < deadlines[timely]):
            timely = i
        if not in_time and (late < 0 or costs[i] < costs[late]):
            late = i
    if timely >= 0 and late >= 0:
        return late if costs[late] < deadlines[timely] - now else timely
    return max(timely, late)


def play(instants: Sequence[Instant], rule: DeadlineRule) -> tuple[list[int], float]:
    """Run instants that are all there at time 0: their order and the total tardiness."""
    costs = np.array([instant.cost for instant in instants], dtype=np.float64)
    deadlines = np.array([instant.deadline for instant in instants], dtype=np.float64)
    order: list[int] = []
    now = late = 0.0
    while (chosen := choose_instant(rule, costs, deadlines, now)) >= 0:
        order.append(chosen)
        now += instants[chosen].cost
        late += max(0.0, now - instants[chosen].deadline)
        costs[chosen] = np.nan
    return order, late
