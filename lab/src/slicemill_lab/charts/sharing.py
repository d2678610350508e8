"""Priorities of an operator that several queries share: Max, Sum, and the priority-defining tree (P26, P27).

Each segment behind the shared operator has a weight w (what its policy counts per tuple: S for rates, S/T for
normalised ones, S/T² for balanced ones) and an expected cost, which contains the shared operator's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill_lab.charts.forks import ForkNode, fork_partitions


@dataclass(frozen=True, slots=True)
class SharedSegment:
    weight: float
    cost: float


@dataclass(frozen=True, slots=True)
class SharedTree:
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


def defining_tree(segments: Sequence[SharedSegment], shared_cost: float) -> SharedTree:
    """The subset of segments with the greatest priority (PDT).

    A segment belongs to it if what is left of it has a greater priority than the tree without it (A6): that
    is where a fork is cut, so that the branches which raise its mean rate stay with it.
    """
    rests = [
        ForkNode(str(place), segment.cost - shared_cost, segment.weight, sinks=(1,))
        for place, segment in enumerate(segments)
    ]
    with_shared = fork_partitions(ForkNode("shared", shared_cost, consumers=tuple(rests)))[0]
    members = tuple(int(name) for name in with_shared.members[1:])
    return SharedTree(members, set_priority([segments[member] for member in members], shared_cost))
