"""Filters of a chain: each tuple is tested on arrival (S14, S19).

A tuple's mask has the bits of the queries whose predicate it satisfies. A slice needs the tuple if one of
these queries reaches into the slice. So the disjunction before a slice is an AND of two masks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from slicemill.operators.join.slices.workload import Member
from slicemill.types import Row

Evaluate = Callable[[Hashable, Row], bool]
"""Evaluates a predicate of any type on a row."""


def evaluate_predicate(predicate: Hashable, row: Row) -> bool:
    """Evaluate a predicate that is a function of the row."""
    if not callable(predicate):
        raise TypeError(f"{predicate!r} is not a function: say how to evaluate it")
    return bool(predicate(row))


class SliceSelection:
    """Computes the masks of one stream's tuples."""

    def __init__(self, members: Sequence[Member], side: int, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._queries: dict[Hashable, int] = {}
        self._always = 0
        for bit, one in enumerate(members):
            predicate = one.sides[side].predicate
            if predicate is None:
                self._always |= 1 << bit
            else:
                self._queries[predicate] = self._queries.get(predicate, 0) | 1 << bit

    @property
    def tests(self) -> int:
        """The number of distinct predicates, i.e. comparisons per tuple."""
        return len(self._queries)

    def mask(self, row: Row) -> int:
        """Return the mask of the queries that need this row."""
        mask = self._always
        for predicate, queries in self._queries.items():
            if self._evaluate(predicate, row):
                mask |= queries
        return mask
