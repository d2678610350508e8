"""Workload of a shared join: queries, arrival rates and selectivities (S15, S18)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import prod

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.members import Member, predicates

AnyOf = Callable[[Mapping[Hashable, float]], float]
"""The selectivity of a disjunction of predicates with known selectivities."""


def independent(selectivities: Mapping[Hashable, float]) -> float:
    """Return the selectivity of a disjunction of independent predicates.

    >>> independent({"hot": 0.5, "wet": 0.2})
    0.6
    """
    return 1 - prod(1 - one for one in selectivities.values())


@dataclass(frozen=True, slots=True)
class JoinWorkload:
    """Queries of a two-stream join and the statistics for its plan.

    `rates`: rows per unit of time on the left and right stream. `join_selectivity`: the share of probed pairs
    that match. `overhead`: the cost of passing one row to one operator, in comparisons (Csys). `tuple_size`:
    memory of one row. `any_of` computes the selectivity of a disjunction.
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
        """True if every query has equal windows on both streams.

        Both streams are then cut at the same ages.
        """
        return all(one.symmetric for one in self.members)

    def passing(self, side: int, among: int) -> float:
        """Return the share of rows that some query in `among` selects."""
        in_front = predicates(self.members, side, among)
        return self.any_of(in_front) if in_front else 1.0
