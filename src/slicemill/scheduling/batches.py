"""What a policy is told of the units that could run: their batches, as columns.

A batch of N rows costs B(N) = a + b·N. A tuple is a batch of one row with a = 0. With a > 0 larger batches
are relatively cheaper, and policies that count the wait bound how long a small one waits.

A decision looks at the batches of all units that are ready, a thousand of them in well under a millisecond:
so a policy is a function of columns, and what no policy asks for is not looked up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.scheduling.arrays import Floats, Positions
from slicemill.scheduling.portions import Aim, UnitFigures

QUANTUM_S = 0.02
"""What a message to a worker, and a run that leaves others waiting, may take by what is estimated."""
_MOST_OVERHEAD = 0.2
"""Of the time of a run that leaves rows for later. Cutting work into ever shorter runs would cost more than
choosing between them can gain."""


def rows_within(
    quantum_s: npt.ArrayLike,
    overhead: npt.ArrayLike,
    per_row: npt.ArrayLike,
    most_overhead: float = _MOST_OVERHEAD,
) -> Floats:
    """How many rows a run may take to end within the quantum, or as soon after it as overhead allows."""
    overhead = np.asarray(overhead, np.float64)
    with np.errstate(divide="ignore"):  # rows that cost nothing
        found: Floats = (np.maximum(quantum_s, overhead / most_overhead) - overhead) / per_row
    return np.maximum(found, 1.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """The pending input of units that could run, an entry for each; times are in seconds."""

    units: Positions
    """Where each is in `figures`."""
    figures: UnitFigures
    rows: Floats
    """N, what a run takes, at least 1: a unit that only time has made ready counts as one row."""
    worth: Floats
    """N as results go: of a join's sides, a row of the one that finds more partners counts for more (P23)."""
    pending: Floats
    """What waits: more than a run takes, where others wait too and all of it would exceed a quantum."""
    wait: Floats
    """W, of the oldest row; above 0, so that what has just come is still told apart by the rest (A12)."""
    slack: Floats
    """Time until the deadline; infinite where there is none."""
    idle: Floats
    """Time since the unit last ran."""

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, entries: Positions) -> Batches:
        """Some of them."""
        columns = (self.rows, self.worth, self.pending, self.wait, self.slack, self.idle)
        return Batches(self.units[entries], self.figures, *(column[entries] for column in columns))

    def rate(self, aim: Aim) -> Floats:
        """Value by time of what counts with each unit for this aim."""
        value, overhead, per_row = self.figures.portions[aim].take(self.units, axis=1)
        rate: Floats = value * (self.rows if aim is Aim.MEMORY else self.worth)
        rate /= overhead + per_row * self.rows
        return rate

    def cost(self) -> tuple[Floats, Floats]:
        """a and b: of the unit and of all behind it."""
        overhead, per_row = self.figures.portions[Aim.ALL, 1:].take(self.units, axis=1)
        return overhead, per_row

    @property
    def time(self) -> Floats:
        """B(N), of the unit and of all behind it."""
        overhead, per_row = self.cost()
        return overhead + per_row * self.rows

    @property
    def ideal_time(self) -> Floats:
        """T: of the queries behind the unit, the least."""
        return self.figures.ideal_time[self.units]
