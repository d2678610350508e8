"""Batches: pending rows and costs of all ready tasks, as columns for a scheduling policy.

Processing a batch of N rows takes B(N) = a + b·N. Scheduling of single tuples is the case N = 1, a = 0. With
a > 0, a larger batch costs less per row. Policies that use the wait limit how long a small batch waits.

A decision over a thousand ready tasks must take well below a millisecond. So a policy is a function of whole
columns, and a column that the policy does not use is not computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats
from slicemill.scheduling.portions import Aim, Positions, TaskColumns

QUANTUM_S = 0.02
"""Target duration of a message to a worker, and of a run while other tasks wait."""
_MOST_OVERHEAD = 0.2
"""Maximum share of fixed cost in a run that leaves pending rows. Shorter runs would waste time."""


def rows_within(
    quantum_s: npt.ArrayLike,
    overhead: npt.ArrayLike,
    per_row: npt.ArrayLike,
    most_overhead: float = _MOST_OVERHEAD,
) -> Floats:
    """Return the number of rows that a run can process within the quantum (target duration).

    The run may exceed the quantum if overhead would otherwise take more than `most_overhead` of it.
    """
    overhead = np.asarray(overhead, np.float64)
    with np.errstate(divide="ignore"):  # the cost per row may be 0
        found: Floats = (np.maximum(quantum_s, overhead / most_overhead) - overhead) / per_row
    return np.maximum(found, 1.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """Pending input of all ready tasks, one entry per task.

    Times are in seconds.
    """

    tasks: Positions
    """Position of each task in the columns of `figures`."""
    figures: TaskColumns
    rows: Floats
    """N: number of rows that the run would read, at least 1."""
    worth: Floats
    """N in units of results: a row of a join input counts more if it has more matches (P23)."""
    pending: Floats
    """Number of all pending rows. It exceeds `rows` if the quantum limits the run."""
    wait: Floats
    """W: wait of the oldest row, always above 0 so that other factors order tasks with new rows (A12)."""
    slack: Floats
    """Time until the deadline of the batch, or infinity without a deadline."""
    idle: Floats
    """Time since the last run of the task."""

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, entries: Positions) -> Batches:
        """Return the batches at these indexes."""
        columns = (self.rows, self.worth, self.pending, self.wait, self.slack, self.idle)
        return Batches(self.tasks[entries], self.figures, *(column[entries] for column in columns))

    def rate(self, aim: Aim) -> Floats:
        """Return the value of a run (for example expected results) per second of work, for each task."""
        value, overhead, per_row = self.figures.portions[aim].take(self.tasks, axis=1)
        rate: Floats = value * (self.rows if aim is Aim.MEMORY else self.worth)
        rate /= overhead + per_row * self.rows
        return rate

    def cost(self) -> tuple[Floats, Floats]:
        """Return fixed cost and cost per row of each task, including all downstream tasks."""
        overhead, per_row = self.figures.portions[Aim.ALL, 1:].take(self.tasks, axis=1)
        return overhead, per_row

    @property
    def time(self) -> Floats:
        """Return the processing time of each batch, including all downstream tasks."""
        overhead, per_row = self.cost()
        return overhead + per_row * self.rows

    @property
    def ideal_time(self) -> Floats:
        """Return the shortest ideal time (response time without other load) of each task's queries."""
        return self.figures.ideal_time[self.tasks]
