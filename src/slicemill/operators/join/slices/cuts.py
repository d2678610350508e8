"""Choice of slice borders: the ages at which one state slice of a join ends and the next begins.

Mem-Opt borders need the least memory, and CPU-Opt borders the fewest comparisons (S17, S18, S20). The choice
is a shortest path problem. Window ends are nodes. A slice from one end to a later end is an edge, whose
length is the cost of the slice. The best chain is the shortest path from age 0 to the longest window. Nodes
are sorted, so that one pass over O(N²) edges finds the path.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product, zip_longest

from slicemill.catalog.queries import FrameUnit, Window
from slicemill.operators.join.slices.workload import (
    ASSUMED,
    AgeSpan,
    ChainCost,
    JoinWorkload,
    Member,
    MemberSide,
    Statistics,
    bits,
    parts,
    predicates,
    span,
    spans,
    windows,
)
from slicemill.operators.join.spec import JoinMember, SharedJoin
from slicemill.time import SECOND_US

Ends = tuple[float, ...]
Objective = Callable[[ChainCost], float]


def by_cpu(cost: ChainCost) -> float:
    """Return the comparisons of a plan, which the CPU-Opt slice borders minimise."""
    return cost.cpu


def cost_objective(cpu: float, memory: float) -> Objective:
    """Return a function that adds the weighted comparisons and the weighted state memory of a plan."""
    return lambda cost: cpu * cost.cpu + memory * cost.memory


def finest(workload: JoinWorkload) -> tuple[Ends, Ends]:
    """Return the slice borders that need the least memory (Mem-Opt): one border per window length.

    No slice then stores a row that no query needs (Theorems 5, 6).
    """
    return windows(workload.members, 0), windows(workload.members, 1)


def cheapest(workload: JoinWorkload, objective: Objective = by_cpu) -> tuple[Ends, Ends]:
    """Return the cheapest slice borders of the left and of the right stream.

    If every query has equal windows on both streams, both streams get the same borders. Otherwise the borders
    of the streams are chosen independently, because the cost of a span of ages on one stream does not depend
    on the borders of the other stream.
    """
    left, right = finest(workload)
    if workload.symmetric:
        both = shortest_path(left, lambda a, b: sum(_length(workload, objective, s, a, b) for s in (0, 1)))
        return both, both
    return (
        shortest_path(left, lambda a, b: _length(workload, objective, 0, a, b)),
        shortest_path(right, lambda a, b: _length(workload, objective, 1, a, b)),
    )


def shortest_path(nodes: Sequence[float], length: Callable[[float, float], float]) -> Ends:
    """Return the nodes of the shortest path from 0 to the last node.

    Of equally short paths, the path with the longer edges is returned.

    >>> shortest_path([1, 2, 3], lambda start, end: (end - start) ** 2)
    (1, 2, 3)
    >>> shortest_path([1, 2, 3], lambda start, end: 1)
    (3,)
    """
    from_zero = (0.0, *nodes)
    distance = [0.0]
    before = [0]
    for j in range(1, len(from_zero)):
        best, i = min((distance[i] + length(from_zero[i], from_zero[j]), i) for i in range(j))
        distance.append(best)
        before.append(i)
    path = []
    j = len(nodes)
    while j:
        path.append(nodes[j - 1])
        j = before[j]
    return tuple(reversed(path))


def _length(workload: JoinWorkload, objective: Objective, side: int, start: float, end: float) -> float:
    return objective(span_cost(workload, side, start, end))


# The cost model below chooses the cheapest slice borders if each state slice is a file (S3, S17-S20).
#
# In a row-by-row operator, each slice border costs comparisons for evicting, routing and merging rows.
# A slice in a file has none of these costs, because a probe reads only the rows of its key.
# The queries of a pair are looked up by the pair's age, and a file of expired rows is deleted whole.
#
# A slice border costs `rewriting` comparisons for each row that becomes as old as the border.
# The rows of the slice are then scanned, and the rows that a query still needs are rewritten.
# Rows that are older than the border and that no query selects are neither stored nor compared.
# A slice border therefore pays off only if a query that selects few rows has a longer window.


@dataclass(frozen=True, slots=True)
class SetWiseStream:
    """Statistics of one join input, from which its slice borders are planned.

    `ending` maps a window length to the share of rows that leave all windows of their queries at this age.
    `compared` is the mean number of comparisons of one stored row per second. `rewriting` is the cost of a
    slice border in comparisons, for each row that becomes as old as the border.
    """

    ending: Mapping[float, float]
    compared: float
    rewriting: float

    @property
    def windows(self) -> Ends:
        return tuple(sorted(self.ending))

    def share_beyond(self, age: float) -> float:
        """Return the share of rows that at least one query still needs when they have this age."""
        return sum(share for window, share in self.ending.items() if window > age)


def finest_cuts(stream: SetWiseStream) -> Ends:
    """Return one slice border per window length, so that no row is stored longer than needed (Mem-Opt)."""
    return stream.windows


def cheapest_cuts(stream: SetWiseStream, keeping: float = 0.0) -> Ends:
    """Return the slice borders of one join input with the lowest total cost.

    Storing a row for a second costs as much as `keeping` comparisons. If `keeping` is 0, the result has the
    fewest comparisons (CPU-Opt).

    >>> cheapest_cuts(SetWiseStream({10: 0.9, 60: 0.1}, compared=1, rewriting=5))
    (10, 60)
    >>> cheapest_cuts(SetWiseStream({10: 0.1, 60: 0.9}, compared=1, rewriting=50))
    (60,)
    """
    windows = stream.windows
    there = {age: stream.share_beyond(age) for age in (0, *windows)}

    def length(start: float, end: float) -> float:
        cut = stream.rewriting * there[start] if end < windows[-1] else 0.0
        return (stream.compared + keeping) * there[start] * (end - start) + cut

    return shortest_path(windows, length)


def fair_price(stream: SetWiseStream) -> float:
    """Return the number of comparisons that cost as much as storing one row for one second.

    At this price a slice border pays off if it evicts an eighth of the rows for the whole window. Smaller
    savings would be lost, because slices are about an eighth of the window long and are deleted whole.
    """
    return 8 * stream.rewriting / stream.windows[-1]


def tuple_seconds(stream: SetWiseStream, ends: Ends) -> float:
    """Return the mean number of seconds for which a join input stores a row, given its slice borders.

    The number of stored rows is the arrival rate times this mean.
    """
    return sum(
        stream.share_beyond(start) * (end - start) for start, end in zip((0.0, *ends[:-1]), ends, strict=True)
    )


# A planned chain has all state slices of a shared join, their queries and their expected costs (S17-S20).
#
# EXPLAIN shows the planned chain.
# In a mask of queries, bit k stands for the query `members[k]`.


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """State slice of a planned join: its ages on both streams and its expected cost."""

    left: AgeSpan
    right: AgeSpan
    expected: ChainCost

    @property
    def sides(self) -> tuple[AgeSpan, AgeSpan]:
        return self.left, self.right

    @property
    def mask(self) -> int:
        """Return an integer whose bit k is set if query k of the join needs this state slice."""
        return self.left.mask | self.right.mask


@dataclass(frozen=True, slots=True)
class PlannedChain:
    """All state slices of a shared join, which together cover the longest windows of its queries.

    `expected` is the state memory of the whole chain, and its comparisons per unit of time, including unions.
    `baselines` are the costs of the same queries in three plans without slices: isolated joins, selections
    pulled up, and selections pushed down. Push-down is omitted if it would split the streams by too many
    predicates.
    """

    members: tuple[Member, ...]
    slices: tuple[PlannedSlice, ...]
    expected: ChainCost
    baselines: Mapping[str, ChainCost]

    @property
    def ends(self) -> tuple[Ends, Ends]:
        """Return the ages at which the state slices end, for the left and the right stream."""
        return tuple(one.left.end for one in self.slices), tuple(one.right.end for one in self.slices)

    def queries(self, number: int) -> tuple[str, ...]:
        """Return the queries that read results of state slice `number`, counted from 0."""
        return tuple(self.members[bit].query for bit in bits(self.slices[number].mask))

    def filters(self, number: int, side: int, probing: bool = False) -> tuple[Hashable, ...]:
        """Return the predicates of which a row must satisfy at least one to enter a state slice.

        The result is empty if all rows pass. Stored rows are filtered for the queries that need this stream's
        span. Probing rows are filtered for the queries that need the other stream's span. With equal windows,
        both filters are the same.
        """
        span = self.slices[number].sides[1 - side if probing else side]
        return tuple(predicates(self.members, side, span.mask))


def mem_opt(workload: JoinWorkload) -> PlannedChain:
    """Return the plan with the smallest state: one state slice per window length (S17, S19)."""
    return build_chain(workload, *finest(workload))


def cpu_opt(workload: JoinWorkload, objective: Objective | None = None) -> PlannedChain:
    """Return the plan of state slices with the fewest comparisons or lowest `objective` (S18, S20)."""
    return build_chain(workload, *(cheapest(workload, objective) if objective else cheapest(workload)))


def build_chain(workload: JoinWorkload, left: Ends, right: Ends) -> PlannedChain:
    """Return the plan whose state slices end at the given ages on the left and on the right stream.

    If one stream has fewer slice borders, its last slices are empty.
    """
    members = workload.members
    pieces = zip_longest(spans(members, 0, left), spans(members, 1, right))
    slices = tuple(
        PlannedSlice(
            a or AgeSpan(left[-1], left[-1], 0),
            b or AgeSpan(right[-1], right[-1], 0),
            sum(
                (span_cost(workload, s, one.start, one.end) for s, one in enumerate((a, b)) if one),
                ChainCost(),
            ),
        )
        for a, b in pieces
    )
    return PlannedChain(members, slices, chain_cost(workload, left, right), baselines(workload))


# The cost of a planned chain is the sum of the costs of its spans of ages (S15, S17, S18, S20).
#
# A span has the stored rows of one stream whose ages are between two slice borders of this stream.
# Only rows of the other stream probe a span, so its cost does not depend on other slice borders (Lemma 4).
# Only the cost of merging the results of several slices (union) depends on the whole chain.


def span_cost(workload: JoinWorkload, side: int, start: float, end: float) -> ChainCost:
    """Return the cost of storing and probing the rows of one stream between two ages.

    Both streams are filtered by the disjunction over the queries that reach beyond `start`. A span that
    replaces two spans therefore also stores rows that a filter between the two would have dropped (S20).
    """
    members, other = workload.members, 1 - side
    piece = span(members, side, start, end)
    rate, probes = workload.rates[side], workload.rates[other]
    stored = rate * workload.passing(side, piece.mask) * piece.length
    probed = stored * probes * workload.passing(other, piece.mask)
    results = probed * workload.join_selectivity
    looked_at = results * mean_predicate_tests(members, side, piece, piece.mask)
    filtered = rate if predicates(members, side, piece.mask) else 0.0
    return ChainCost(
        memory=stored * workload.tuple_size,
        probe=probed,
        purge=probes,
        route=results * len(piece.inside),
        select=filtered + looked_at,
        overhead=workload.overhead * probes,
    )


def mean_predicate_tests(members: Sequence[Member], side: int, piece: AgeSpan, among: int) -> float:
    """Return the mean number of predicates that are tested on a join result.

    Results have already passed the filter for `among`. A predicate is tested on results up to the longest
    window of its queries (see `count_predicate_tests`).
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
    """Return the cost of a join whose state slices end at the given ages."""
    total = ChainCost(union=unions(workload, left, right) * sum(workload.rates))
    for side, ends in enumerate((left, right)):
        for piece in spans(workload.members, side, ends):
            if piece.mask:
                total += span_cost(workload, side, piece.start, piece.end)
    return total


def unions(workload: JoinWorkload, left: Sequence[float], right: Sequence[float]) -> int:
    """Return the number of operators that merge results of several state slices for a query.

    A query whose windows end in the first slice needs no such union (S13).
    """
    return len(
        {one.sides for one in workload.members if one.left.window > left[0] or one.right.window > right[0]}
    )


def routing_tests(width: int, early_exit: bool = False) -> float:
    """Return the mean number of age comparisons that find the queries of one join result.

    `width` slices of equal length are merged into one slice. A router compares the age with every window that
    ends inside. With early exit, the router compares in ascending order and stops at the first window that is
    long enough. A result of the r-th slice then costs min(r, width - 1).

    >>> routing_tests(4), routing_tests(4, early_exit=True)
    (3.0, 2.25)
    """
    if not early_exit:
        return float(width - 1)
    return sum(min(r, width - 1) for r in range(1, width + 1)) / width


def merge_saving(workload: JoinWorkload, i: int, j: int, published: bool = False) -> float:
    """Return the comparisons saved by merging state slices i to j of queries that select all rows (S18).

    Slices are numbered from 1. The merge removes j - i operators. The published formula counts one more.
    """
    ends = (0.0, *sorted({one.left.window for one in workload.members}))
    left, right = workload.rates
    gone = j - i
    routed = 2 * left * right * (ends[j] - ends[i - 1]) * workload.join_selectivity * gone
    overhead = workload.overhead * (gone + 1 if published else gone)
    return (left + right) * (gone + overhead) - routed


# EXPLAIN shows the planned chain of state slices of a shared join (S15, S17-S20).


def chain_of_join(join: SharedJoin) -> PlannedChain | None:
    """Return the planned state slices of a shared join and their expected cost, or None.

    Costs are computed from measured statistics if there are any, and from assumptions otherwise. The result
    is None if a window counts rows or is unbounded.
    """
    if not all(_in_time(window) for member in join.members for window in member.windows):
        return None
    known = join.measured or ASSUMED
    members = tuple(
        Member(member.name, tuple(_side(known, member, side) for side in (0, 1))) for member in join.members
    )
    return mem_opt(JoinWorkload(members, (known.rates[0], known.rates[1]), known.matching))


def _side(known: Statistics, member: JoinMember, side: int) -> MemberSide:
    window, selection = member.windows[side].extent, member.selections[side]
    assert window is not None
    passing = 1.0 if selection is None else known.passing.get((member.name, side), known.selected)
    return MemberSide(window / SECOND_US, selection, passing)


def _in_time(window: Window) -> bool:
    return window.frame is FrameUnit.RANGE and bool(window.extent)


# The functions below return the costs of plans that join the same queries without state slices (S6-S8).


def separate_joins(workload: JoinWorkload) -> ChainCost:
    """Return the cost of a separate join for each query, on the rows that the query selects (S6)."""
    alone = (replace(workload, members=(one,)) for one in workload.members)
    return sum((_one_join(one) for one in alone), ChainCost())


def pull_up(workload: JoinWorkload) -> ChainCost:
    """Return the cost of one join with the longest windows of all queries (S7, Eq 4.1).

    The results are routed to queries by age, then filtered by the predicates of each query.
    """
    bare = replace(workload, members=tuple(one.without_predicates() for one in workload.members))
    selected = 0.0
    for side in (0, 1):
        whole = span(workload.members, side, 0, windows(workload.members, side)[-1])
        selected += _results(bare, whole.end) * mean_predicate_tests(workload.members, side, whole, among=0)
    return _one_join(bare) + ChainCost(select=selected)


def push_down(workload: JoinWorkload) -> ChainCost:
    """Return the cost of splitting both streams by the queries' predicates before joins (S8, Eq 4.2).

    There is a join for each pair of stream parts, followed by unions. Joins do not share state, so a part of
    one stream is stored once per part of the other stream.
    """
    left, right = (parts(workload.members, side).items() for side in (0, 1))
    total = ChainCost(split=sum(rate * _tests(workload, side) for side, rate in enumerate(workload.rates)))
    joins_of = [0] * len(workload.members)
    results_of = [0.0] * len(workload.members)
    for (holding_a, a), (holding_b, b) in product(left, right):
        served = a & b
        if not served:
            continue
        members = tuple(workload.members[bit].without_predicates() for bit in bits(served))
        shares = share(workload, 0, holding_a), share(workload, 1, holding_b)
        rates = (workload.rates[0] * shares[0], workload.rates[1] * shares[1])
        join = replace(workload, members=members, rates=rates)
        total += _one_join(join)
        for bit in bits(served):
            joins_of[bit] += 1
            results_of[bit] += sum(_results(join, side.window) for side in workload.members[bit].sides)
    merged = sum(results for joins, results in zip(joins_of, results_of, strict=True) if joins > 1)
    return total + ChainCost(union=merged)


PREDICATES_TO_SPLIT_BY = 6
"""Maximum number of predicates per stream for which push-down is costed.

Six predicates make 64 joins, and each further predicate doubles the number of joins."""


def baselines(workload: JoinWorkload) -> Mapping[str, ChainCost]:
    """Map the name of each plan that uses no state slices to its cost.

    Push-down is included only if each stream has few predicates.
    """
    costs = {"isolated": separate_joins(workload), "pull-up": pull_up(workload)}
    if all(_tests(workload, side) <= PREDICATES_TO_SPLIT_BY for side in (0, 1)):
        costs["push-down"] = push_down(workload)
    return costs


def share(workload: JoinWorkload, side: int, holding: frozenset[Hashable]) -> float:
    """Return the share of a stream's rows that satisfy the predicates in `holding` and no other.

    The share is computed by inclusion and exclusion: the rows that fail all other predicates, minus the rows
    that also fail some of `holding`.
    """
    known = {
        one.sides[side].predicate: one.sides[side].selectivity
        for one in workload.members
        if one.sides[side].predicate is not None
    }
    others = [predicate for predicate in known if predicate not in holding]
    total = 0.0
    for size in range(len(holding) + 1):
        for failing in combinations(holding, size):
            fail = {predicate: known[predicate] for predicate in (*others, *failing)}
            none_holds = 1 - workload.any_of(fail) if fail else 1.0
            total += (-1) ** size * none_holds
    return total


def _one_join(workload: JoinWorkload) -> ChainCost:
    """Return the cost of one join with a single state slice, whose results are routed by age."""
    ends = [windows(workload.members, side)[-1:] for side in (0, 1)]
    return chain_cost(workload, ends[0], ends[1])


def _results(workload: JoinWorkload, window: float) -> float:
    return workload.rates[0] * workload.rates[1] * window * workload.join_selectivity


def _tests(workload: JoinWorkload, side: int) -> int:
    return len({one.sides[side].predicate for one in workload.members} - {None})
