"""Queries of a shared window join, with windows and predicates (S2, S19).

Each query is a bit in all masks: bit k is the k-th member. Predicates are opaque to the planner, which needs
only their identity and selectivity. The executor of the plan also evaluates them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from slicemill.errors import SlicemillError


@dataclass(frozen=True, slots=True)
class MemberSide:
    """Window and predicate of a query on one stream.

    The query reads rows of age 0 <= age < window on which the predicate holds. The window is in any unit of
    time, or in rows; rates must use the same unit. `predicate` is None if all rows pass.
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
    """Query of a shared join, with one side per joined stream."""

    query: str
    sides: tuple[MemberSide, ...]

    @property
    def left(self) -> MemberSide:
        return self.sides[0]

    @property
    def right(self) -> MemberSide:
        return self.sides[1]

    def without_predicates(self) -> Member:
        """Return the same windows without predicates."""
        return Member(self.query, tuple(MemberSide(side.window) for side in self.sides))

    @property
    def symmetric(self) -> bool:
        """True if all windows are equal."""
        return len({side.window for side in self.sides}) == 1


def member(query: str, window: float, predicate: Hashable = None, selectivity: float = 1.0) -> Member:
    """Return a member with equal windows and a predicate on the left stream."""
    return Member(query, (MemberSide(window, predicate, selectivity), MemberSide(window)))


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of set bits, lowest first.

    >>> list(bits(0b1101))
    [0, 2, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def reaching(members: Sequence[Member], side: int, age: float) -> int:
    """Return the queries whose window on this stream exceeds `age`."""
    return sum(1 << bit for bit, one in enumerate(members) if one.sides[side].window > age)


def windows(members: Sequence[Member], side: int) -> tuple[float, ...]:
    """Return the distinct windows on a stream, ascending (S17, S46).

    Queries with equal windows use the same slices.
    """
    return tuple(sorted({one.sides[side].window for one in members}))


def predicates(members: Sequence[Member], side: int, among: int) -> dict[Hashable, float]:
    """Return the predicates, with selectivities, whose disjunction filters a stream.

    They belong to the queries `among`. Empty if all rows pass: `among` is empty, or one of its queries has no
    predicate.
    """
    wanted = [members[bit].sides[side] for bit in bits(among)]
    if any(one.predicate is None for one in wanted):
        return {}
    return {one.predicate: one.selectivity for one in wanted}


def parts(members: Sequence[Member], side: int) -> dict[frozenset[Hashable], int]:
    """Split a stream by predicates: map the predicates that hold to queries (S8).

    There are up to 2^k parts for k different predicates. Parts that no query selects are omitted.
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
    """Count predicates to test before `of` may take a result (S14, S19).

    The joined rows have passed the disjunction over `among` on each stream. A predicate that equals this
    disjunction holds already, and a predicate shared by several queries is tested once.
    """
    in_front = [set(predicates(members, side, among)) for side in range(len(members[0].sides))]
    asked = {
        (number, side.predicate)
        for bit in bits(of)
        for number, side in enumerate(members[bit].sides)
        if side.predicate is not None
    }
    return sum(in_front[number] != {predicate} for number, predicate in asked)
