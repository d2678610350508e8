"""How the ages of one stream's tuples are cut, and which queries need each piece (S17, S46, S49).

```
          age 0        w1           w2                  w3
              |---------|------------|-------------------|
 q1 (w1)      |  whole  |
 q2 (w2)      |  whole  |   whole    |
 q3 (w3)      |  whole  |   whole    |       whole       |
 mask            111         110              100
```

Where a cut is left out (CPU-Opt, S18) a query's window ends inside a span: it takes only part of what is
found there, and a router compares ages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import and_, or_

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.members import Member, reaching, windows


@dataclass(frozen=True, slots=True)
class AgeSpan:
    """Tuples of one stream with start <= age < end.

    `whole`: queries that take all pairs found here. `inside`: for each window that ends inside, ascending,
    the queries that take pairs younger than it.
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
        """All queries that take something of this span: who is not among them does not need its tuples."""
        return reduce(or_, (queries for _, queries in self.inside), self.whole)

    def takers(self, age: float) -> int:
        """The queries that take a pair of this age; every window that ends inside is compared (S18)."""
        takers = self.whole
        for window, queries in self.inside:
            if age < window:
                takers |= queries
        return takers


def span(members: Sequence[Member], side: int, start: float, end: float) -> AgeSpan:
    """The span of one stream from `start` to `end`, with the queries that need it."""
    whole = 0
    inside: dict[float, int] = {}
    for bit, one in enumerate(members):
        window = one.sides[side].window
        if start < window < end:
            inside[window] = inside.get(window, 0) | 1 << bit
        elif window > start:
            # Also a span of no length has takers where windows go beyond it: tuples pass through it.
            whole |= 1 << bit
    return AgeSpan(start, end, whole, tuple(sorted(inside.items())))


def spans(members: Sequence[Member], side: int, ends: Sequence[float]) -> tuple[AgeSpan, ...]:
    """One span per end, from age 0 on."""
    if any(a > b for a, b in pairwise((0.0, *ends))):
        raise SlicemillError(f"the ends of slices must ascend from 0: {list(ends)}")
    return tuple(span(members, side, start, end) for start, end in pairwise((0, *ends)))


def slice_masks(members: Sequence[Member], side: int) -> tuple[int, ...]:
    """B[j][i] of stream j = `side`: whom slice i serves when every window is a cut (S49)."""
    return tuple(reaching(members, side, start) for start in (0, *windows(members, side)[:-1]))


def targets(masks: Sequence[int]) -> int:
    """Whom a result serves: the queries that all of its parts serve (S49).

    >>> f"{targets([0b111, 0b110, 0b010]):03b}"
    '010'
    """
    return reduce(and_, masks)
