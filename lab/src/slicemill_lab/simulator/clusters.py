"""Clusters of units with similar static priorities, and the best cluster without looking at all (P18, P19).

Policies of the form Φ·W change with the clock, so every decision would compute the priorities of all units.
Clusters make few of them: members share a pseudo-priority, the lower bound of their range. Logarithmic ranges
keep the error of each below the same factor; uniform ones do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from slicemill.scheduling.arrays import Floats


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


def apart(priorities: Sequence[float]) -> Clusters:
    """Every unit on its own: no approximation, and all of them to look at."""
    return Clusters(tuple(range(len(priorities))), tuple(priorities))


class FoundCluster(NamedTuple):
    """The best cluster, -1 if none has input, and what was done to find it."""

    cluster: int
    score: float
    looked_at: int
    """Pairs of a cluster and its head, for each of which a priority is computed and compared."""
    rounds: int
    """As many bounds for what was not looked at are computed and compared, too."""


@njit(cache=True)
def scan(pseudo: Floats, heads: Floats, now: float) -> FoundCluster:
    """The cluster with the greatest pseudo-priority times wait of its head, by looking at all.

    `heads` are the arrivals of the clusters' head tuples, not a number where there is none.
    """
    best, best_score, seen = -1, -math.inf, 0
    for cluster in range(len(pseudo)):
        if not math.isnan(heads[cluster]):
            seen += 1
            score = pseudo[cluster] * (now - heads[cluster])
            if score > best_score or (score == best_score and pseudo[cluster] > pseudo[best]):
                best, best_score = cluster, score
    return FoundCluster(best, best_score, seen, 0)


@njit(cache=True)
def top_one(pseudo: Floats, heads: Floats, now: float) -> FoundCluster:
    """The same by Fagin's algorithm: clusters by priority and tuples by wait are looked at in turns, until no
    pair that has not been seen can be better.

    A tuple at the head of several clusters stands for the one with the greatest priority, which the others
    cannot beat; so when either list is at its end, all has been seen.
    """
    filled = np.flatnonzero(~np.isnan(heads))
    by_priority = filled[np.argsort(-pseudo[filled], kind="mergesort")]
    by_wait = by_priority[np.argsort(heads[by_priority], kind="mergesort")]
    best, best_score, seen, rounds, turn = -1, -math.inf, 0, 0, 0
    while turn < len(by_wait):
        first, second = by_priority[rounds], by_wait[turn]
        for number in range(1 if first == second else 2):
            cluster = second if number else first
            seen += 1
            score = pseudo[cluster] * (now - heads[cluster])
            if score > best_score or (score == best_score and pseudo[cluster] > pseudo[best]):
                best, best_score = cluster, score
        rounds += 1
        if best_score >= pseudo[first] * (now - heads[second]):
            break
        while turn < len(by_wait) and heads[by_wait[turn]] == heads[second]:
            turn += 1
    return FoundCluster(best, best_score, seen, rounds)
