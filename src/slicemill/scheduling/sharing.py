"""Priorities of an operator that several queries share: Max, Sum, and the priority-defining tree (P26, P27).

Each segment behind the shared operator has a weight w (what its policy counts per tuple: S for rates, S/T for
normalised ones, S/T² for balanced ones) and an expected cost, which contains the shared operator's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedSegment:
    weight: float
    cost: float


@dataclass(frozen=True, slots=True)
class Tree:
    """Segments that run at once with the shared operator, by position, and the priority they give it."""

    members: tuple[int, ...]
    priority: float


def set_priority(segments: Sequence[SharedSegment], shared_cost: float) -> float:
    """Of all segments together, the shared operator counted once (Sum, eq. 3.9)."""
    cost = sum(segment.cost for segment in segments) - (len(segments) - 1) * shared_cost
    return sum(segment.weight for segment in segments) / cost


def best_single(segments: Sequence[SharedSegment]) -> float:
    """Of the best segment alone (Max)."""
    return max(segment.weight / segment.cost for segment in segments)


def remainder_priority(segment: SharedSegment, shared_cost: float) -> float:
    """Of what is left of a segment once the shared operator has run."""
    left = segment.cost - shared_cost
    return segment.weight / left if left > 0 else math.inf


def defining_tree(segments: Sequence[SharedSegment], shared_cost: float) -> Tree:
    """The subset of segments with the greatest priority (PDT).

    A segment belongs to it if what is left of it has a greater priority than the tree without it, so
    segments are tried in the order of their remainders' priorities (A6).
    """
    order = sorted(range(len(segments)), key=lambda i: (-remainder_priority(segments[i], shared_cost), i))
    members = [order[0]]
    priority = set_priority([segments[order[0]]], shared_cost)
    for candidate in order[1:]:
        larger = set_priority([segments[i] for i in (*members, candidate)], shared_cost)
        if larger <= priority:
            break
        members.append(candidate)
        priority = larger
    return Tree(tuple(members), priority)
