"""What a policy is told of the units that could run: their batches, as columns.

A batch of N rows costs B(N) = a + b·N. A tuple is a batch of one row with a = 0. With a > 0 larger batches
are relatively cheaper, and policies that count the wait bound how long a small one waits.

A decision looks at the batches of all units that are ready, a thousand of them in well under a millisecond:
so a policy is a function of columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.scheduling.arrays import Floats

_MOST_OVERHEAD = 0.1
"""Of the time of a run that leaves rows for later. Cutting work into ever shorter runs would cost more than
choosing between them can gain."""


def rows_within(quantum_s: float, overhead: npt.ArrayLike, per_row: npt.ArrayLike) -> Floats:
    """How many rows a run may take to end within the quantum, or as soon after it as overhead allows."""
    overhead = np.asarray(overhead, np.float64)
    with np.errstate(divide="ignore"):  # rows that cost nothing
        found: Floats = (np.maximum(quantum_s, overhead / _MOST_OVERHEAD) - overhead) / per_row
    return np.maximum(found, 1.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """The pending input of units that could run, a position for each; times are in seconds.

    A unit that others read stands for all of the way to the results (P2): its selectivity and its cost are
    those of the whole path.
    """

    rows: Floats
    """N, what a run takes, at least 1: a unit that only time has made ready counts as one row."""
    pending: Floats
    """What waits: more than a run takes, where others wait too and all of it would exceed a quantum."""
    wait: Floats
    """W, of the oldest row; above 0, so that what has just come is still told apart by the rest (A12)."""
    selectivity: Floats
    """S: results per row, of all queries of the unit together."""
    overhead: Floats
    """a: what a run costs, however few its rows."""
    per_row: Floats
    """b."""
    ideal_time: Floats
    """T: what a row takes with nothing else there, if it passes all of the way."""
    weight: Floats
    """α: how much a result matters, on average over the results of the unit."""
    outputs: Floats
    """How many queries get their results from the unit."""
    slack: Floats
    """Time until the deadline of the oldest row; infinite where no service level sets one."""
    idle: Floats
    """Time since the unit last ran."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def time(self) -> Floats:
        """B(N)."""
        return self.overhead + self.per_row * self.rows

    @property
    def rate(self) -> Floats:
        """Results per time, each as much as it matters."""
        return self.weight * (self.selectivity * self.rows) / self.time
