"""Age ranges of rows, and the queries of each range (S17, S46, S49).

```
          age 0        w1           w2                  w3
              |---------|------------|-------------------|
 q1 (w1)      |  whole  |
 q2 (w2)      |  whole  |   whole    |
 q3 (w3)      |  whole  |   whole    |       whole       |
 mask            111         110              100
```

If a cut is omitted (CPU-Opt, S18), the window of a query ends inside a span. The query then reads only a part
of the span's results, and a router compares ages.
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
    """Rows of one stream with start <= age < end.

    `whole`: the queries that take all pairs of this span. `inside`: for each window that ends inside,
    ascending, the queries that take pairs younger than the window.
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
        """All queries that need rows of this span."""
        return reduce(or_, (queries for _, queries in self.inside), self.whole)

    def takers(self, age: float) -> int:
        """Return the queries that take a pair of this age.

        Every window that ends inside is compared (S18).
        """
        takers = self.whole
        for window, queries in self.inside:
            if age < window:
                takers |= queries
        return takers


def span(members: Sequence[Member], side: int, start: float, end: float) -> AgeSpan:
    """Return the span from `start` to `end`, with its queries."""
    whole = 0
    inside: dict[float, int] = {}
    for bit, one in enumerate(members):
        window = one.sides[side].window
        if start < window < end:
            inside[window] = inside.get(window, 0) | 1 << bit
        elif window > start:
            # A span of length 0 is also needed by longer windows: rows pass through it.
            whole |= 1 << bit
    return AgeSpan(start, end, whole, tuple(sorted(inside.items())))


def spans(members: Sequence[Member], side: int, ends: Sequence[float]) -> tuple[AgeSpan, ...]:
    """Return one span per end, from age 0 on."""
    if any(a > b for a, b in pairwise((0.0, *ends))):
        raise SlicemillError(f"the ends of slices must ascend from 0: {list(ends)}")
    return tuple(span(members, side, start, end) for start, end in pairwise((0, *ends)))


def slice_masks(members: Sequence[Member], side: int) -> tuple[int, ...]:
    """Return B[j][i] of stream j = `side`: the queries of slice i (S49).

    Every window is a cut.
    """
    return tuple(reaching(members, side, start) for start in (0, *windows(members, side)[:-1]))


def targets(masks: Sequence[int]) -> int:
    """Return the queries that all parts of a result serve (S49).

    >>> f"{targets([0b111, 0b110, 0b010]):03b}"
    '010'
    """
    return reduce(and_, masks)
