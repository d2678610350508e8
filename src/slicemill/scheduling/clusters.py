"""Clusters of units with similar static priorities, and the best cluster without looking at all (P18, P19).

Policies of the form Φ·W change with the clock, so every decision would compute the priorities of all units.
Clusters make few of them: members share a pseudo-priority, the lower bound of their range. Logarithmic ranges
keep the error of each below the same factor; uniform ones do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clusters:
    """`member_of[unit]` is the unit's cluster; `pseudo[cluster]` its priority. Empty clusters are kept."""

    member_of: tuple[int, ...]
    pseudo: tuple[float, ...]


def logarithmic(priorities: Sequence[float], count: int) -> Clusters:
    """`count` ranges, each wider than the one below by the same factor."""
    least, greatest = min(priorities), max(priorities)
    if least == greatest:
        return Clusters((0,) * len(priorities), (least,))
    ratio = (greatest / least) ** (1 / count)
    pseudo = tuple(least * ratio**i for i in range(count))
    return Clusters(tuple(_place(value, pseudo) for value in priorities), pseudo)


def uniform(priorities: Sequence[float], count: int) -> Clusters:
    """`count` ranges of the same width."""
    least, greatest = min(priorities), max(priorities)
    if least == greatest:
        return Clusters((0,) * len(priorities), (least,))
    width = (greatest - least) / count
    pseudo = tuple(least + width * i for i in range(count))
    return Clusters(tuple(_place(value, pseudo) for value in priorities), pseudo)


def _place(value: float, pseudo: Sequence[float]) -> int:
    """The last cluster whose lower bound is not above the value."""
    return max(0, sum(bound <= value for bound in pseudo) - 1)


@dataclass(frozen=True, slots=True)
class Found:
    cluster: int
    score: float
    looked_at: int


def top_one(pseudo: Sequence[float], heads: Sequence[float | None], now: float) -> Found | None:
    """The cluster with the greatest pseudo-priority times wait of its head, by Fagin's algorithm.

    `heads` are the arrivals of the clusters' head tuples. Clusters are looked at by priority and by wait in
    turns, until no cluster not yet seen can be better.
    """
    filled = [cluster for cluster, head in enumerate(heads) if head is not None]
    if not filled:
        return None
    waits = {cluster: now - head for cluster, head in enumerate(heads) if head is not None}
    by_priority = sorted(filled, key=lambda cluster: -pseudo[cluster])
    by_wait = sorted(filled, key=lambda cluster: (-waits[cluster], -pseudo[cluster]))
    best, best_score, seen = -1, -math.inf, 0
    for first, second in zip(by_priority, by_wait, strict=True):
        for cluster in (first, second):
            seen += 1
            score = pseudo[cluster] * waits[cluster]
            if score > best_score or (score == best_score and pseudo[cluster] > pseudo[best]):
                best, best_score = cluster, score
        if best_score >= pseudo[first] * waits[second]:
            break
    return Found(best, best_score, seen)
