"""What a policy is told of the units that could run: their batches, as columns.

A batch of N rows costs B(N) = a + b·N. A tuple is a batch of one row with a = 0. With a > 0 larger batches
are relatively cheaper, and policies that count the wait bound how long a small one waits.

A decision looks at the batches of all units that are ready, a thousand of them in well under a millisecond:
so a policy is a function of columns, and what no policy asks for is not looked up.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.scheduling.arrays import Floats, Positions
from slicemill.scheduling.portions import Aim, UnitFigures


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
    """What waits: the same as `rows`, where a run takes all."""
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
