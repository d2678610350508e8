"""Aggregate instants with deadlines: EDF, highest rate, and the hybrid of both (P24, P25).

The end of a window is the deadline of its result. EDF meets every deadline while that is possible, and
performs badly under overload. Highest rate is best once all deadlines have passed. The hybrid checks for each
instant if it can still be in time, and needs no parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats
from slicemill.scheduling import priorities as hybrid

_late: Any = njit(cache=True)(hybrid.late)


@dataclass(frozen=True, slots=True)
class Instant:
    """A result that is due, with its remaining work (C) and its deadline (D)."""

    cost: float
    deadline: float


class DeadlineRule(IntEnum):
    """Rule that selects the next instant."""

    EDF = 0
    """Earliest deadline first."""
    HIGHEST_RATE = 1
    """Least work first, as each instant has one result (A19)."""
    HYBRID = 2
    """Earliest deadline of those in time. A late instant runs first if it ends before that deadline."""


@njit(cache=True)
def choose_instant(rule: int, costs: Floats, deadlines: Floats, now: float) -> int:
    """Return the position of the next instant, or -1. Instants with a NaN cost are finished."""
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
    """Run instants that are all ready at time 0. Return their order and the total tardiness."""
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
