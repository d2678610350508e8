"""Selections inside a chain: each tuple is judged once, at the entrance (S14, S19).

Its mask has the bit of every query whose predicate it satisfies. A slice needs it while a query of the mask
reaches that far: the disjunction that stands before a slice is one AND of two masks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from slicemill.operators.join.slices.members import Member
from slicemill.rows import Row

Evaluate = Callable[[Hashable, Row], bool]
"""Whether a predicate, whatever object that is, holds on a row."""


def called(predicate: Hashable, row: Row) -> bool:
    """The predicate is a function of the row."""
    if not callable(predicate):
        raise TypeError(f"{predicate!r} is not a function: say how to evaluate it")
    return bool(predicate(row))


class SliceSelection:
    """The masks of one stream's tuples."""

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
        """Comparisons per tuple: the different predicates."""
        return len(self._queries)

    def mask(self, row: Row) -> int:
        """The queries that want this row."""
        mask = self._always
        for predicate, queries in self._queries.items():
            if self._evaluate(predicate, row):
                mask |= queries
        return mask
