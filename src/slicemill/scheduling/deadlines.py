"""Aggregate instants with deadlines: EDF, highest rate, and the hybrid of both (P24, P25).

The end of a window is the deadline of its result. EDF meets every deadline while the load can be met, and
falls over when it cannot; highest rate is best once all deadlines have passed. The hybrid asks of each
instant whether it can still be in time, and needs no parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Instant:
    """A result that is due: the work left for it (C) and its deadline (D)."""

    cost: float
    deadline: float


Pick: TypeAlias = Callable[[Sequence[Instant], float], int]


def edf(instants: Sequence[Instant], now: float) -> int:  # noqa: ARG001
    """The earliest deadline first."""
    return min(range(len(instants)), key=lambda i: (instants[i].deadline, i))


def highest_rate(instants: Sequence[Instant], now: float) -> int:  # noqa: ARG001
    """One result per instant, so the least work first (A19)."""
    return min(range(len(instants)), key=lambda i: (instants[i].cost, i))


def hybrid(instants: Sequence[Instant], now: float) -> int:
    """By deadline among those in time; a late one goes before them if it is done by their first deadline."""
    timely = [i for i, instant in enumerate(instants) if now + instant.cost <= instant.deadline]
    late = [i for i in range(len(instants)) if i not in timely]
    if not timely or not late:
        return (edf if timely else highest_rate)(instants, now)
    first = min(timely, key=lambda i: (instants[i].deadline, i))
    best = min(late, key=lambda i: (instants[i].cost, i))
    return best if now + instants[best].cost < instants[first].deadline else first


def play(instants: Sequence[Instant], pick: Pick) -> tuple[list[int], float]:
    """Run instants that are all there at time 0: their order and the total tardiness."""
    left = list(range(len(instants)))
    order: list[int] = []
    now = late = 0.0
    while left:
        chosen = left.pop(pick([instants[i] for i in left], now))
        order.append(chosen)
        now += instants[chosen].cost
        late += max(0.0, now - instants[chosen].deadline)
    return order, late
