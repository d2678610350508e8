"""What a chain of slices costs (S15, S17, S18, S20).

A span is probed by the other stream's tuples only, so a chain's cost is the sum over the spans of both
streams, and a span's cost does not depend on how the rest is cut (Lemma 4). Only the unions look at the whole
chain.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from slicemill.operators.join.slices.costs import ChainCost
from slicemill.operators.join.slices.members import Member, bits, predicates
from slicemill.operators.join.slices.spans import AgeSpan, span, spans
from slicemill.operators.join.slices.workload import JoinWorkload


def span_cost(workload: JoinWorkload, side: int, start: float, end: float) -> ChainCost:
    """The cost of holding one stream's tuples of these ages and probing them with the other stream.

    Both streams are filtered by the disjunction over the queries that reach beyond `start`, so a span that
    swallows a cut also keeps what a filter there would have removed (S20).
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
    """Mean number of predicates looked at on a result of a span, when `among` has been filtered for.

    A predicate concerns results up to the longest window of the queries that have it; see `unproved`.
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
    """The cost of the chain whose slices end at these ages on the left and on the right stream."""
    total = ChainCost(union=unions(workload, left, right) * sum(workload.rates))
    for side, ends in enumerate((left, right)):
        for piece in spans(workload.members, side, ends):
            if piece.mask:
                total += span_cost(workload, side, piece.start, piece.end)
    return total


def unions(workload: JoinWorkload, left: Sequence[float], right: Sequence[float]) -> int:
    """How many unions follow the chain: a query whose windows end in the first slice needs none (S13)."""
    return len(
        {one.sides for one in workload.members if one.left.window > left[0] or one.right.window > right[0]}
    )


def routing_tests(width: int, early_exit: bool = False) -> float:
    """Mean comparisons to route one result of `width` equally long merged slices.

    A router compares every window that ends inside. With early exit it goes through them in ascending order
    and stops at the first that is long enough, so a result of the r-th slice costs min(r, width - 1).

    >>> routing_tests(4), routing_tests(4, early_exit=True)
    (3.0, 2.25)
    """
    if not early_exit:
        return float(width - 1)
    return sum(min(r, width - 1) for r in range(1, width + 1)) / width


def merge_saving(workload: JoinWorkload, i: int, j: int, published: bool = False) -> float:
    """Comparisons that merging the slices i..j (from 1) of a chain without selections saves (S18).

    The operator count says that j - i operators disappear; the published formula counts one more.
    """
    ends = (0.0, *sorted({one.left.window for one in workload.members}))
    left, right = workload.rates
    gone = j - i
    routed = 2 * left * right * (ends[j] - ends[i - 1]) * workload.join_selectivity * gone
    overhead = workload.overhead * (gone + 1 if published else gone)
    return (left + right) * (gone + overhead) - routed
