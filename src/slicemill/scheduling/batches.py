"""Batches: pending rows and costs of all ready tasks, as columns for a scheduling policy.

Processing a batch of N rows takes B(N) = a + b·N seconds, where a is the fixed cost of a run and b the cost
per row. Scheduling of single rows is the case N = 1, a = 0. If a > 0, a larger batch costs less per row.
Policies that use the wait of the oldest row limit how long a small batch waits.

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
"""Target duration in seconds of a run of a task while other tasks wait, and of a message to a worker."""
_MOST_OVERHEAD = 0.2
"""Maximum share of the fixed cost in the duration of a run that does not read all pending rows."""


def rows_within(
    quantum_s: npt.ArrayLike,
    overhead: npt.ArrayLike,
    per_row: npt.ArrayLike,
    most_overhead: float = _MOST_OVERHEAD,
) -> Floats:
    """Return the number of rows that a run can process within the quantum (target duration).

    The run may exceed the quantum if fixed cost would otherwise take more than the share `most_overhead` of
    it.
    """
    overhead = np.asarray(overhead, np.float64)
    with np.errstate(divide="ignore"):  # the cost per row may be 0
        found: Floats = (np.maximum(quantum_s, overhead / most_overhead) - overhead) / per_row
    return np.maximum(found, 1.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """Pending input of all ready tasks, as columns with one entry per task.

    All times are in seconds.
    """

    tasks: Positions
    """Position of each task in the columns of `figures`."""
    figures: TaskColumns
    rows: Floats
    """N: number of rows that the next run of the task would read, at least 1."""
    worth: Floats
    """N weighted by expected results: a row of a join input counts more if it has more matches (P23)."""
    pending: Floats
    """Number of all pending rows of the task, of which the next run may read only `rows`."""
    wait: Floats
    """W: wait of the oldest pending row, always above 0, so that products with W are never 0 (A12)."""
    slack: Floats
    """Time until the deadline of the batch, or infinity if the batch has no deadline."""
    idle: Floats
    """Time since the last run of the task."""

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, entries: Positions) -> Batches:
        """Return only the batches at the given indexes."""
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
