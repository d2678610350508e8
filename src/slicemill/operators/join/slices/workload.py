"""Workload of a shared join: its queries, arrival rates and selectivities (S15, S18)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import reduce
from itertools import combinations, pairwise
from math import prod
from operator import and_, or_

from slicemill.errors import SlicemillError

AnyOf = Callable[[Mapping[Hashable, float]], float]
"""Function that returns the selectivity of a disjunction, given the selectivity of each predicate."""


def disjunction_selectivity(selectivities: Mapping[Hashable, float]) -> float:
    """Return the selectivity of a disjunction of independent predicates.

    >>> disjunction_selectivity({"hot": 0.5, "wet": 0.2})
    0.6
    """
    return 1 - prod(1 - one for one in selectivities.values())


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """Queries of a shared join of two streams, and the statistics from which it is planned.

    `rates` are the rows per unit of time on the left and the right stream. `join_selectivity` is the share of
    probed pairs that match. `overhead` is the cost of passing one row to one operator, in comparisons (Csys).
    `tuple_size` is the memory of one row. `any_of` computes the selectivity of a disjunction.
    """

    members: tuple[Member, ...]
    rates: tuple[float, float]
    join_selectivity: float
    overhead: float = 0.0
    tuple_size: float = 1.0
    any_of: AnyOf = disjunction_selectivity

    def __post_init__(self) -> None:
        if not self.members:
            raise SlicemillError("a shared join needs at least one query")
        if any(len(one.sides) != 2 for one in self.members):
            raise SlicemillError("a chain joins two streams: every member needs two sides")

    @property
    def symmetric(self) -> bool:
        """Return True if every query has equal windows on both streams.

        Both streams then get the same slice borders.
        """
        return all(one.symmetric for one in self.members)

    def passing(self, side: int, among: int) -> float:
        """Return the share of a stream's rows that at least one query of the mask `among` selects."""
        in_front = predicates(self.members, side, among)
        return self.any_of(in_front) if in_front else 1.0


# A member of a shared join is one query: its window and its predicate on each stream (S2, S19).
#
# In every mask of queries, bit k stands for the k-th member.
# The planner does not analyse predicates, but compares them for equality and uses their selectivities.


@dataclass(frozen=True, slots=True)
class MemberSide:
    """Window and predicate of one query on one stream of its join.

    The query reads rows with 0 <= age < window for which the predicate is true. The window is in any unit of
    time, or in rows. Rates use the same unit. `predicate` is None if the query selects all rows.
    """

    window: float
    predicate: Hashable = None
    selectivity: float = 1.0

    def __post_init__(self) -> None:
        if self.window <= 0:
            raise SlicemillError(f"a window must be longer than 0, this one is {self.window:g}")
        if not 0 <= self.selectivity <= 1:
            raise SlicemillError(f"a selectivity lies between 0 and 1, this one is {self.selectivity:g}")
        if self.predicate is None and self.selectivity != 1:
            raise SlicemillError("without a predicate every tuple passes: the selectivity must be 1")


@dataclass(frozen=True, slots=True)
class Member:
    """Query of a shared join: its window and its predicate on each joined stream."""

    query: str
    sides: tuple[MemberSide, ...]

    @property
    def left(self) -> MemberSide:
        return self.sides[0]

    @property
    def right(self) -> MemberSide:
        return self.sides[1]

    def without_predicates(self) -> Member:
        """Return a copy of the query that has the same windows and no predicates."""
        return Member(self.query, tuple(MemberSide(side.window) for side in self.sides))

    @property
    def symmetric(self) -> bool:
        """Return True if the query has windows of equal length on all its streams."""
        return len({side.window for side in self.sides}) == 1


def member(query: str, window: float, predicate: Hashable = None, selectivity: float = 1.0) -> Member:
    """Return a query with the same window on both streams, and a predicate on the left stream."""
    return Member(query, (MemberSide(window, predicate, selectivity), MemberSide(window)))


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set in a mask, lowest position first.

    >>> list(bits(0b1101))
    [0, 2, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def queries_reaching(members: Sequence[Member], side: int, age: float) -> int:
    """Return a mask with the bits of the queries whose window on one stream is longer than `age`."""
    return sum(1 << bit for bit, one in enumerate(members) if one.sides[side].window > age)


def windows(members: Sequence[Member], side: int) -> tuple[float, ...]:
    """Return the distinct window lengths of all queries on one stream, ascending (S17, S46).

    Queries with equal windows use the same slices.
    """
    return tuple(sorted({one.sides[side].window for one in members}))


def predicates(members: Sequence[Member], side: int, among: int) -> dict[Hashable, float]:
    """Map each predicate that the queries in `among` put on one stream to its selectivity.

    A row is dropped if it satisfies none of these predicates. The result is empty if all rows pass, because a
    query has no predicate or `among` is empty.
    """
    wanted = [members[bit].sides[side] for bit in bits(among)]
    if any(one.predicate is None for one in wanted):
        return {}
    return {one.predicate: one.selectivity for one in wanted}


def parts(members: Sequence[Member], side: int) -> dict[frozenset[Hashable], int]:
    """Map each set of predicates to the mask of queries that select a row satisfying exactly this set.

    k different predicates divide a stream into up to 2^k parts. Parts that no query selects are omitted (S8).
    """
    wanted = [one.sides[side].predicate for one in members]
    known = [predicate for predicate in dict.fromkeys(wanted) if predicate is not None]
    cut = {}
    for size in range(len(known) + 1):
        for holding in map(frozenset, combinations(known, size)):
            queries = sum(1 << bit for bit, one in enumerate(wanted) if one is None or one in holding)
            if queries:
                cut[holding] = queries
    return cut


def count_predicate_tests(members: Sequence[Member], among: int, of: int) -> int:
    """Return the number of predicates to test before a result is emitted for the queries in mask `of`.

    The joined rows have passed the disjunction of the predicates of `among` on each stream. A predicate that
    equals this disjunction need not be tested. A predicate of several queries is tested once (S14, S19).
    """
    in_front = [set(predicates(members, side, among)) for side in range(len(members[0].sides))]
    asked = {
        (number, side.predicate)
        for bit in bits(of)
        for number, side in enumerate(members[bit].sides)
        if side.predicate is not None
    }
    return sum(in_front[number] != {predicate} for number, predicate in asked)


# The window lengths of all queries divide the ages of rows into spans, each with a mask of queries.
#
# ```
#           age 0        w1           w2                  w3
#               |---------|------------|-------------------|
#  q1 (w1)      |  whole  |
#  q2 (w2)      |  whole  |   whole    |
#  q3 (w3)      |  whole  |   whole    |       whole       |
#  mask            111         110              100
# ```
#
# Each span above is one state slice, and each window length is a slice border (S17, S46, S49).
# The plan with the fewest comparisons (CPU-Opt, S18) may omit a slice border.
# The window of a query then ends inside a span, and the query reads only some results of the span.
# A router compares the age of each result with the window length to find these results.


@dataclass(frozen=True, slots=True)
class AgeSpan:
    """Span of ages of one stream's stored rows: start <= age < end.

    `whole` is the mask of queries that take all pairs of this span. `inside` has (window, mask of its
    queries) for each window that ends inside the span, ascending. These queries take only pairs younger than
    the window.
    """

    start: float
    end: float
    whole: int
    inside: tuple[tuple[float, int], ...] = ()

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def mask(self) -> int:
        """Return a mask with the bits of all queries that need stored rows of this span of ages."""
        return reduce(or_, (queries for _, queries in self.inside), self.whole)

    def queries_at(self, age: float) -> int:
        """Return a mask of the queries for which two rows this far apart in time are a result.

        Every window that ends inside the span is compared (S18).
        """
        takers = self.whole
        for window, queries in self.inside:
            if age < window:
                takers |= queries
        return takers


def span(members: Sequence[Member], side: int, start: float, end: float) -> AgeSpan:
    """Return the span of ages from `start` to `end`, and the queries that need rows of these ages."""
    whole = 0
    inside: dict[float, int] = {}
    for bit, one in enumerate(members):
        window = one.sides[side].window
        if start < window < end:
            inside[window] = inside.get(window, 0) | 1 << bit
        elif window > start:
            # A query with a longer window also belongs to a span of length 0, through which its rows pass.
            whole |= 1 << bit
    return AgeSpan(start, end, whole, tuple(sorted(inside.items())))


def spans(members: Sequence[Member], side: int, ends: Sequence[float]) -> tuple[AgeSpan, ...]:
    """Return the spans of ages that end at `ends`. The first span begins at age 0."""
    if any(a > b for a, b in pairwise((0.0, *ends))):
        raise SlicemillError(f"the ends of slices must ascend from 0: {list(ends)}")
    return tuple(span(members, side, start, end) for start, end in pairwise((0, *ends)))


def slice_masks(members: Sequence[Member], side: int) -> tuple[int, ...]:
    """Return the mask of queries that need each state slice of one stream (S49).

    Every window length is a slice border.
    """
    return tuple(queries_reaching(members, side, start) for start in (0, *windows(members, side)[:-1]))


def targets(masks: Sequence[int]) -> int:
    """Return the mask of queries for which a pair of rows is a join result (S49).

    `masks` are the query masks of both rows and of their ages.

    >>> f"{targets([0b111, 0b110, 0b010]):03b}"
    '010'
    """
    return reduce(and_, masks)


# A join is planned with assumed statistics until its statistics have been measured (S52).


@dataclass(frozen=True, slots=True)
class Statistics:
    """Row rates of the joined streams, and selectivities of keys and conditions.

    `rates` are the rows per second of each stream that at least one query selects. `passing` has the
    selectivities of conditions by query and side, with default `selected`. `matching` is the share of pairs
    with equal keys.
    """

    rates: tuple[float, ...] = (100.0, 100.0)
    matching: float = 0.01
    selected: float = 0.5
    passing: Mapping[tuple[str, int], float] = field(default_factory=dict)
    measured: bool = False


ASSUMED = Statistics()


def over_subtasks(parts: Sequence[Statistics]) -> Statistics:
    """Combine the statistics of all subtasks of a join, which partition the streams by key."""
    rates = tuple(sum(by_stream) for by_stream in zip(*(part.rates for part in parts), strict=True))
    passing: dict[tuple[str, int], float] = {}
    for part in parts:
        for (query, side), share in part.passing.items():
            weight = part.rates[side] / rates[side] if rates[side] else 0.0
            passing[query, side] = passing.get((query, side), 0.0) + share * weight
    matching = sum(part.matching * _pairs(part.rates) for part in parts)
    possible = _pairs(rates)
    return Statistics(rates, matching / possible if possible else 0.0, passing=passing, measured=True)


def _pairs(rates: Sequence[float]) -> float:
    first, second = sorted(rates)[-2:]
    return first * second


# A plan of a join has two costs: its state memory and its comparisons (S7, S8, S15).


@dataclass(frozen=True, slots=True)
class ChainCost:
    """State memory of a join plan, and its comparisons per unit of time.

    Comparisons are listed by purpose. Each of these operations costs 1: probing a pair, evicting, routing or
    selecting a row, splitting a stream, and merging a row in a union.
    """

    memory: float = 0.0
    probe: float = 0.0
    purge: float = 0.0
    route: float = 0.0
    select: float = 0.0
    split: float = 0.0
    union: float = 0.0
    overhead: float = 0.0

    @property
    def cpu(self) -> float:
        return float(sum(astuple(self)[1:]))

    def __add__(self, other: ChainCost) -> ChainCost:
        return ChainCost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))
