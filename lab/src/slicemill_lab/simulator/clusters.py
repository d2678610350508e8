"""Clusters of tasks with similar static priorities, and search of the best cluster (P18, P19).

Priorities of the form Φ·W change with the clock, so every decision would have to compute the priorities of
all tasks. Clusters reduce their number: the members share a pseudo-priority, the lower bound of their range.
Logarithmic ranges bound the error by a constant factor; uniform ranges do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats


@dataclass(frozen=True, slots=True)
class Clusters:
    """`member_of[task]` is the task's cluster, `pseudo[cluster]` its priority. Empty clusters are kept."""

    member_of: tuple[int, ...]
    pseudo: tuple[float, ...]


def logarithmic(priorities: Sequence[float], count: int) -> Clusters:
    """Return `count` ranges, each wider than the previous one by the same factor."""
    least, greatest = min(priorities), max(priorities)
    if least == greatest:
        return Clusters((0,) * len(priorities), (least,))
    ratio = (greatest / least) ** (1 / count)
    pseudo = tuple(least * ratio**i for i in range(count))
    return Clusters(tuple(_place(value, pseudo) for value in priorities), pseudo)


def uniform(priorities: Sequence[float], count: int) -> Clusters:
    """Return `count` ranges of the same width."""
    least, greatest = min(priorities), max(priorities)
    if least == greatest:
        return Clusters((0,) * len(priorities), (least,))
    width = (greatest - least) / count
    pseudo = tuple(least + width * i for i in range(count))
    return Clusters(tuple(_place(value, pseudo) for value in priorities), pseudo)


def _place(value: float, pseudo: Sequence[float]) -> int:
    """Return the last cluster whose lower bound does not exceed the value."""
    return max(0, sum(bound <= value for bound in pseudo) - 1)


def apart(priorities: Sequence[float]) -> Clusters:
    """Return one cluster per task: no approximation, and no savings."""
    return Clusters(tuple(range(len(priorities))), tuple(priorities))


class FoundCluster(NamedTuple):
    """Best cluster, or -1 if none has input, with the effort to find it."""

    cluster: int
    score: float
    looked_at: int
    """Inspected pairs of a cluster and its head. A priority is computed and compared for each pair."""
    rounds: int
    """Number of bounds for the pairs not inspected, which are computed and compared as well."""


@njit(cache=True)
def scan(pseudo: Floats, heads: Floats, now: float) -> FoundCluster:
    """Find the cluster with the greatest pseudo-priority times wait of its head, by a full scan.

    `heads` are the arrivals of the clusters' head tuples, NaN for an empty cluster.
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
    """Find the best cluster with Fagin's algorithm.

    Clusters by priority and tuples by wait are inspected in turns, until no remaining pair can be better. A
    tuple at the head of several clusters counts for the one with the greatest priority, which the others
    cannot exceed. So the search is complete when either list is exhausted.
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
