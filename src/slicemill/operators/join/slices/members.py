"""Who takes part in a shared window join: queries with a window and a predicate per stream (S2, S19).

A query is a bit in every mask: bit k is the k-th member. Predicates are opaque: the planner only asks whether
two are the same one and how many tuples they let through; who executes the plan also knows how to evaluate
them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from slicemill.errors import SlicemillError


@dataclass(frozen=True, slots=True)
class MemberSide:
    """What a query wants of one stream: tuples of age 0 <= age < window on which the predicate holds.

    The window is in any unit of time, or in tuples; rates and clocks must share it. No predicate is None.
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
    """One query of a shared join, with one side per joined stream."""

    query: str
    sides: tuple[MemberSide, ...]

    @property
    def left(self) -> MemberSide:
        return self.sides[0]

    @property
    def right(self) -> MemberSide:
        return self.sides[1]

    def without_predicates(self) -> Member:
        """The same windows on everything that arrives."""
        return Member(self.query, tuple(MemberSide(side.window) for side in self.sides))

    @property
    def symmetric(self) -> bool:
        """Whether all its windows are the same."""
        return len({side.window for side in self.sides}) == 1


def member(query: str, window: float, predicate: Hashable = None, selectivity: float = 1.0) -> Member:
    """The usual two-stream member: one window for both streams, a predicate on the left one."""
    return Member(query, (MemberSide(window, predicate, selectivity), MemberSide(window)))


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first.

    >>> list(bits(0b1101))
    [0, 2, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def reaching(members: Sequence[Member], side: int, age: float) -> int:
    """The queries whose window on this stream goes beyond `age`."""
    return sum(1 << bit for bit, one in enumerate(members) if one.sides[side].window > age)


def windows(members: Sequence[Member], side: int) -> tuple[float, ...]:
    """The distinct windows on this stream, ascending: equal ones are served by the same slices (S17, S46)."""
    return tuple(sorted({one.sides[side].window for one in members}))


def predicates(members: Sequence[Member], side: int, among: int) -> dict[Hashable, float]:
    """The predicates, with selectivities, whose disjunction the queries `among` put in front of a stream.

    Empty when everything passes: one of them has no predicate, or there is none of them.
    """
    wanted = [members[bit].sides[side] for bit in bits(among)]
    if any(one.predicate is None for one in wanted):
        return {}
    return {one.predicate: one.selectivity for one in wanted}


def parts(members: Sequence[Member], side: int) -> dict[frozenset[Hashable], int]:
    """How predicates cut a stream: by those that hold on a tuple, the queries that want it (S8).

    There are up to 2^k parts for k different predicates; what nobody wants is left out.
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


def unproved(members: Sequence[Member], among: int, of: int) -> int:
    """How many predicates must still be looked at on a result before the queries `of` may take it (S14, S19).

    Its parts have passed the disjunction over `among` on each stream; a predicate that is the whole of that
    disjunction holds already, and one that several queries share is looked at once.
    """
    in_front = [set(predicates(members, side, among)) for side in range(len(members[0].sides))]
    asked = {
        (number, side.predicate)
        for bit in bits(of)
        for number, side in enumerate(members[bit].sides)
        if side.predicate is not None
    }
    return sum(in_front[number] != {predicate} for number, predicate in asked)
