"""Comparisons of a join by the age of what is compared: from them follows how far back to look (S54, S55).

Under load, pairs of tuples that are far apart in time are not looked for. How much that saves is measured:
each slice that is looked into says how often its rows were compared, and how old they are. The figures of all
cells of a unit are added up, so that what is decided does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

# The longest window of an input is told in so many parts.
PARTS = 16

_DECAY = 0.9
_STEPS = 30


@dataclass(frozen=True, slots=True)
class Compared:
    """Of one run, by input: the comparisons in each part of its longest window, the youngest first.

    `oldest` is the part in which the oldest rows are that were looked at, -1 where there were none.
    """

    parts: tuple[tuple[int, ...], ...]
    oldest: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(map(sum, self.parts))


class AgeCounter:
    """Counts the comparisons of one run, slice by slice; in plain numbers, since runs may be short."""

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self.begin_anew()

    def begin_anew(self) -> None:
        self._counts = [[0.0] * PARTS for _ in range(self._inputs)]
        self._oldest = [-1] * self._inputs

    def add(self, side: int, youngest: float, oldest: float, count: int) -> None:
        """Rows of one input of these ages, in shares of its longest window, were compared so often.

        Rows lie evenly between the ages.
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
            # Rounded so that the sum stays what it is.
            upto = [round(so_far) for so_far in accumulate(counts)]
            parts.append(tuple(after - before for before, after in pairwise((0, *upto))))
        return Compared(tuple(parts), tuple(self._oldest))


class ComparedByAge:
    """What a row that comes is compared with, by input and age, of late."""

    def __init__(self, inputs: int = 2) -> None:
        self._parts = np.zeros((inputs, PARTS))
        self._known = np.zeros((inputs, PARTS), np.bool_)

    @property
    def parts(self) -> NDArray[np.float64]:
        """By input; parts in which no rows have been seen yet are as those in which some were."""
        known = self._known.sum(axis=1)
        means = np.where(self._known, self._parts, 0.0).sum(axis=1) / np.maximum(known, 1)
        return np.where(self._known, self._parts, means[:, None])

    def add(self, cells: Sequence[Compared], rows: int, looked: float = 1.0) -> None:
        """Count a run of so many rows in which windows were looked into up to a share of their length.

        Of older parts it says nothing: what is known of them stays.
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
        """The comparisons with rows in the newest share of windows, which are shares of the longest."""
        return sum(
            float(np.interp(window * share * PARTS, np.arange(PARTS + 1), np.append(0.0, np.cumsum(side))))
            for window, side in zip(windows, self.parts, strict=True)
        )

    def reach(self, windows: Sequence[float], share: float) -> float:
        """The share of the windows, newest rows first, in which that share of the comparisons is made.

        Where nothing is known ages are equally likely.
        """
        whole = self.within(windows, 1.0)
        if share >= 1.0 or whole <= 0.0:
            return min(share, 1.0)
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.within(windows, middle) < share * whole else (low, middle)
        return high
