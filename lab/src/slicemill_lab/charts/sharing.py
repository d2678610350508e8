"""Priorities of a shared operator: Max, Sum, and the priority-defining tree (P26, P27).

Each segment behind the shared operator has a weight w (the value that its policy counts per tuple: S for
rates, S/T for normalised rates, S/T² for balanced rates) and an expected cost, which includes the cost of the
shared operator.
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
    """Segments, by position, that run together with the shared operator, and the resulting priority."""

    members: tuple[int, ...]
    priority: float


def set_priority(segments: Sequence[SharedSegment], shared_cost: float) -> float:
    """Return the priority of all segments together, with the shared operator counted once (Sum, eq. 3.9)."""
    cost = sum(segment.cost for segment in segments) - (len(segments) - 1) * shared_cost
    return sum(segment.weight for segment in segments) / cost


def best_single(segments: Sequence[SharedSegment]) -> float:
    """Return the priority of the best single segment (Max)."""
    return max(segment.weight / segment.cost for segment in segments)


def defining_tree(segments: Sequence[SharedSegment], shared_cost: float) -> SharedTree:
    """Return the subset of segments with the greatest priority (PDT).

    A segment is a member if the rest of it has a greater priority than the tree without it (A6). The tree is
    cut like a fork, so that branches that raise its mean rate stay with the operator.
    """
    rests = [
        ForkNode(str(place), segment.cost - shared_cost, segment.weight, sinks=(1,))
        for place, segment in enumerate(segments)
    ]
    with_shared = fork_partitions(ForkNode("shared", shared_cost, consumers=tuple(rests)))[0]
    members = tuple(int(name) for name in with_shared.members[1:])
    return SharedTree(members, set_priority([segments[member] for member in members], shared_cost))
