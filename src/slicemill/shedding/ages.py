"""Comparisons of a join by the age of what is compared: from them follows how far back to look (S54, S55).

Under load, pairs of tuples that are far apart in time are not looked for. How much that saves is measured:
each slice that is looked into says how often its rows were compared, and how old they are. The figures of all
cells of a unit are added up, so that what is decided does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# The longest window of an input is told in so many parts.
PARTS = 16

# By input, the comparisons in each part of its longest window, the youngest first.
Compared: TypeAlias = tuple[tuple[int, ...], ...]

_DECAY = 0.9
_STEPS = 30


class AgeCounter:
    """Counts the comparisons of one run, slice by slice."""

    def __init__(self, inputs: int) -> None:
        self._counts = np.zeros((inputs, PARTS))

    def begin_anew(self) -> None:
        self._counts[:] = 0

    def add(self, side: int, youngest: float, oldest: float, count: int) -> None:
        """Rows of one input of these ages, in shares of its longest window, were compared so often.

        Rows lie evenly between the ages.
        """
        edges = np.arange(PARTS + 1) / PARTS
        low, high = np.clip([youngest, oldest], 0.0, 1.0)
        if high - low < 1e-9:
            self._counts[side, min(int(low * PARTS), PARTS - 1)] += count
            return
        within = np.clip(edges, low, high)
        self._counts[side] += count * np.diff(within) / (high - low)

    def found(self) -> Compared:
        # Rounded so that the sum stays what it is.
        upto = np.rint(np.cumsum(self._counts, axis=1)).astype(np.int64)
        return tuple(tuple(side) for side in np.diff(upto, axis=1, prepend=0).tolist())


@dataclass(slots=True)
class ComparedByAge:
    """What a row that comes is compared with, by age, of late; `looked` is how far back that was."""

    parts: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, PARTS)))
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(PARTS, np.bool_))

    def add(self, cells: Sequence[Compared], rows: int, looked: float = 1.0) -> None:
        """Count a run of so many rows in which windows were looked into up to a share of their length.

        Of older parts it says nothing: what is known of them stays.
        """
        if not rows or not cells:
            return
        seen = np.arange(1, PARTS + 1) / PARTS <= looked + 1e-9
        now = np.sum([np.array(cell, np.float64) for cell in cells], axis=0) / rows
        fresh, old = seen & ~self.known, seen & self.known
        self.parts[:, fresh] = now[:, fresh]
        self.parts[:, old] = _DECAY * self.parts[:, old] + (1 - _DECAY) * now[:, old]
        self.known |= seen

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
