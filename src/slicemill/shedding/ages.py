"""Age statistics of join comparisons, for load shedding (S54, S55).

Under load, a join does not compare tuples that are far apart in time. The savings are measured: each slice
that is searched reports how often its rows were compared and how old they are. The counts of all cells of
a unit are added up, so that decisions do not depend on the number of cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

# number of buckets for the longest window of an input
PARTS = 16

_DECAY = 0.9
_STEPS = 30


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparisons of one run, per input.

    `parts` has the number of comparisons by age bucket, the youngest first. `oldest` is the bucket of the
    oldest rows that were searched, -1 if there were none.
    """

    parts: tuple[tuple[int, ...], ...]
    oldest: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(map(sum, self.parts))


class AgeCounter:
    """Counter of the comparisons of one run.

    The counter uses Python numbers, because runs may be short.
    """

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self.begin_anew()

    def begin_anew(self) -> None:
        self._counts = [[0.0] * PARTS for _ in range(self._inputs)]
        self._oldest = [-1] * self._inputs

    def add(self, side: int, youngest: float, oldest: float, count: int) -> None:
        """Count comparisons with the rows of a slice.

        Ages are shares of the input's longest window. Rows are assumed to be evenly distributed between
        the two ages.
        """
        low, high = (PARTS * min(max(age, 0.0), 1.0) for age in (youngest, oldest))
        first, last = min(int(low), PARTS - 1), min(int(high), PARTS - 1)
        counts = self._counts[side]
        self._oldest[side] = max(self._oldest[side], last)
        if first >= last:
            counts[first] += count
            return
        each = count / (high - low)
        counts[first] += each * (first + 1 - low)
        for part in range(first + 1, last):
            counts[part] += each
        counts[last] += each * (high - last)

    def found(self) -> Compared:
        parts = []
        for counts in self._counts:
            # Round cumulative counts, to preserve the sum.
            upto = [round(so_far) for so_far in accumulate(counts)]
            parts.append(tuple(after - before for before, after in pairwise((0, *upto))))
        return Compared(tuple(parts), tuple(self._oldest))


class ComparedByAge:
    """Average comparisons per arriving row, by input and age bucket."""

    def __init__(self, inputs: int = 2) -> None:
        self._parts = np.zeros((inputs, PARTS))
        self._known = np.zeros((inputs, PARTS), np.bool_)

    @property
    def parts(self) -> NDArray[np.float64]:
        """Return the averages.

        Buckets without data get the mean of the input's other buckets.
        """
        known = self._known.sum(axis=1)
        means = np.where(self._known, self._parts, 0.0).sum(axis=1) / np.maximum(known, 1)
        return np.where(self._known, self._parts, means[:, None])

    def add(self, cells: Sequence[Compared], rows: int, looked: float = 1.0) -> None:
        """Add the counts of a run over `rows` rows.

        `looked` is the share of the windows that was searched. Averages of older buckets stay unchanged.
        """
        if not rows or not cells:
            return
        oldest = np.max([cell.oldest for cell in cells], axis=0)
        ends = np.arange(1, PARTS + 1) / PARTS
        seen = (np.arange(PARTS) <= oldest[:, None]) & (ends <= looked + 1e-9)
        now = np.sum([np.array(cell.parts, np.float64) for cell in cells], axis=0) / rows
        weight = np.where(self._known, 1 - _DECAY, 1.0)
        self._parts = np.where(seen, (1 - weight) * self._parts + weight * now, self._parts)
        self._known |= seen

    def within(self, windows: Sequence[float], share: float) -> float:
        """Return the comparisons with rows in the newest `share` of the windows.

        `windows` are shares of the longest window.
        """
        return sum(
            float(np.interp(window * share * PARTS, np.arange(PARTS + 1), np.append(0.0, np.cumsum(side))))
            for window, side in zip(windows, self.parts, strict=True)
        )

    def reach(self, windows: Sequence[float], share: float) -> float:
        """Return the share of the windows that contains this share of the comparisons.

        The newest rows are counted first. Without data all ages are equally likely.
        """
        whole = self.within(windows, 1.0)
        if share >= 1.0 or whole <= 0.0:
            return min(share, 1.0)
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.within(windows, middle) < share * whole else (low, middle)
        return high
