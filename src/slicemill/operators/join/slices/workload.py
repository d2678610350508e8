"""What a shared join has to cope with: its members, arrival rates and selectivities (S15, S18)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import prod

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.members import Member, predicates

AnyOf = Callable[[Mapping[Hashable, float]], float]
"""The selectivity of the disjunction of predicates with known selectivities."""


def independent(selectivities: Mapping[Hashable, float]) -> float:
    """Tuples that pass at least one of several predicates that know nothing of each other.

    >>> independent({"hot": 0.5, "wet": 0.2})
    0.6
    """
    return 1 - prod(1 - one for one in selectivities.values())


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """Members of a two-stream join and the statistics its plan is chosen by.

    `rates`: tuples per unit of time on the left and right stream. `join_selectivity`: the share of probed
    pairs that match. `overhead`: what it costs to hand one tuple to one operator, in comparisons (Csys).
    `tuple_size`: memory of one tuple. `any_of` tells how predicates overlap.
    """

    members: tuple[Member, ...]
    rates: tuple[float, float]
    join_selectivity: float
    overhead: float = 0.0
    tuple_size: float = 1.0
    any_of: AnyOf = independent

    def __post_init__(self) -> None:
        if not self.members:
            raise SlicemillError("a shared join needs at least one query")
        if any(len(one.sides) != 2 for one in self.members):
            raise SlicemillError("a chain joins two streams: every member needs two sides")

    @property
    def symmetric(self) -> bool:
        """Whether every query has one window for both streams: then both are cut at the same ages."""
        return all(one.symmetric for one in self.members)

    def passing(self, side: int, among: int) -> float:
        """The share of a stream's tuples that at least one of the queries `among` wants."""
        in_front = predicates(self.members, side, among)
        return self.any_of(in_front) if in_front else 1.0
