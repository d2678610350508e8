"""Cost of a chain of slices (S15, S17, S18, S20).

A span is probed only by rows of the other stream. The cost of a chain is therefore the sum over the spans of
both streams, and the cost of a span does not depend on the other cuts (Lemma 4). Only the cost of unions
depends on the whole chain.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from slicemill.operators.join.slices.costs import ChainCost
from slicemill.operators.join.slices.members import Member, bits, predicates
from slicemill.operators.join.slices.spans import AgeSpan, span, spans
from slicemill.operators.join.slices.workload import JoinWorkload


def span_cost(workload: JoinWorkload, side: int, start: float, end: float) -> ChainCost:
    """Return the cost of storing and probing a span.

    Both streams are filtered by the disjunction over the queries that reach beyond `start`. A span that
    replaces two spans therefore also keeps rows that a filter at the omitted cut would have removed (S20).
    """
    members, other = workload.members, 1 - side
    piece = span(members, side, start, end)
    rate, probes = workload.rates[side], workload.rates[other]
    stored = rate * workload.passing(side, piece.mask) * piece.length
    probed = stored * probes * workload.passing(other, piece.mask)
    results = probed * workload.join_selectivity
    looked_at = results * looks(members, side, piece, piece.mask)
    filtered = rate if predicates(members, side, piece.mask) else 0.0
    return ChainCost(
        memory=stored * workload.tuple_size,
        probe=probed,
        purge=probes,
        route=results * len(piece.inside),
        select=filtered + looked_at,
        overhead=workload.overhead * probes,
    )


def looks(members: Sequence[Member], side: int, piece: AgeSpan, among: int) -> float:
    """Return the mean number of predicates tested on a result of a span.

    Results have already passed the filter for `among`. A predicate is tested up to the longest window of the
    queries that have it; see `unproved`.
    """
    in_front = [set(predicates(members, stream, among)) for stream in (0, 1)]
    until: dict[tuple[int, Hashable], float] = {}
    for bit in bits(piece.mask):
        reach = min(members[bit].sides[side].window, piece.end)
        for stream, wanted in enumerate(members[bit].sides):
            if wanted.predicate is not None and in_front[stream] != {wanted.predicate}:
                key = (stream, wanted.predicate)
                until[key] = max(reach, until.get(key, reach))
    return sum(reach - piece.start for reach in until.values()) / piece.length if until else 0.0


def chain_cost(workload: JoinWorkload, left: Sequence[float], right: Sequence[float]) -> ChainCost:
    """Return the cost of a chain with slices that end at these ages."""
    total = ChainCost(union=unions(workload, left, right) * sum(workload.rates))
    for side, ends in enumerate((left, right)):
        for piece in spans(workload.members, side, ends):
            if piece.mask:
                total += span_cost(workload, side, piece.start, piece.end)
    return total


def unions(workload: JoinWorkload, left: Sequence[float], right: Sequence[float]) -> int:
    """Return the number of unions after the chain.

    A query whose windows end in the first slice needs no union (S13).
    """
    return len(
        {one.sides for one in workload.members if one.left.window > left[0] or one.right.window > right[0]}
    )


def routing_tests(width: int, early_exit: bool = False) -> float:
    """Return the mean comparisons to route a result of merged slices.

    `width` slices of equal length are merged. A router compares every window that ends inside. With early
    exit, the router compares in ascending order and stops at the first window that is long enough, so that a
    result of the r-th slice costs min(r, width - 1).

    >>> routing_tests(4), routing_tests(4, early_exit=True)
    (3.0, 2.25)
    """
    if not early_exit:
        return float(width - 1)
    return sum(min(r, width - 1) for r in range(1, width + 1)) / width


def merge_saving(workload: JoinWorkload, i: int, j: int, published: bool = False) -> float:
    """Return the comparisons saved by merging slices i..j without selections (S18).

    Slices are numbered from 1. By the operator count j - i operators disappear; the published formula counts
    one more.
    """
    ends = (0.0, *sorted({one.left.window for one in workload.members}))
    left, right = workload.rates
    gone = j - i
    routed = 2 * left * right * (ends[j] - ends[i - 1]) * workload.join_selectivity * gone
    overhead = workload.overhead * (gone + 1 if published else gone)
    return (left + right) * (gone + overhead) - routed
