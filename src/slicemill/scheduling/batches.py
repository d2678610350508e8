"""Batches: input of policies about the units that are ready, as columns.

A batch of N rows costs B(N) = a + b·N. A tuple is a batch of one row with a = 0. With a > 0, larger
batches are cheaper per row. Policies that include the wait limit how long a small batch waits.

A decision over a thousand ready units must take well below a millisecond. So a policy is a function of
columns, and values that no policy needs are not computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats
from slicemill.scheduling.portions import Aim, Positions, UnitColumns

QUANTUM_S = 0.02
"""Estimated duration limit of a message to a worker, and of a run if other units wait."""
_MOST_OVERHEAD = 0.2
"""Maximum share of overhead in a run that leaves rows for later.

Shorter runs would cost more than better scheduling can gain.
"""


def rows_within(
    quantum_s: npt.ArrayLike,
    overhead: npt.ArrayLike,
    per_row: npt.ArrayLike,
    most_overhead: float = _MOST_OVERHEAD,
) -> Floats:
    """Return the number of rows that a run can process within the quantum.

    The quantum is exceeded if the overhead would otherwise be too large a share.
    """
    overhead = np.asarray(overhead, np.float64)
    with np.errstate(divide="ignore"):  # rows that cost nothing
        found: Floats = (np.maximum(quantum_s, overhead / most_overhead) - overhead) / per_row
    return np.maximum(found, 1.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """Pending input of ready units, with one entry per unit.

    Times are in seconds.
    """

    units: Positions
    """Position of each unit in `figures`."""
    figures: UnitColumns
    rows: Floats
    """N, the rows of a run, at least 1: a unit that is ready only by time counts as one row."""
    worth: Floats
    """N weighted by results: of a join's sides, rows with more partners count more (P23)."""
    pending: Floats
    """Pending rows.

    Pending rows exceed `rows` if other units wait and all rows would exceed a quantum.
    """
    wait: Floats
    """W of the oldest row.

    W is above 0, so that new rows are still ordered by other factors (A12).
    """
    slack: Floats
    """Time until the deadline; infinite without one."""
    idle: Floats
    """Time since the unit last ran."""

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, entries: Positions) -> Batches:
        """Return the batches of these entries."""
        columns = (self.rows, self.worth, self.pending, self.wait, self.slack, self.idle)
        return Batches(self.units[entries], self.figures, *(column[entries] for column in columns))

    def rate(self, aim: Aim) -> Floats:
        """Return the value per second of each unit's portion for this aim."""
        value, overhead, per_row = self.figures.portions[aim].take(self.units, axis=1)
        rate: Floats = value * (self.rows if aim is Aim.MEMORY else self.worth)
        rate /= overhead + per_row * self.rows
        return rate

    def cost(self) -> tuple[Floats, Floats]:
        """Return a and b of each unit with all units behind it."""
        overhead, per_row = self.figures.portions[Aim.ALL, 1:].take(self.units, axis=1)
        return overhead, per_row

    @property
    def time(self) -> Floats:
        """Return B(N) of each unit with all units behind it."""
        overhead, per_row = self.cost()
        return overhead + per_row * self.rows

    @property
    def ideal_time(self) -> Floats:
        """Return T: the minimum over the queries behind the unit."""
        return self.figures.ideal_time[self.units]
