"""The policies for a dispatcher that runs a whole batch of pending rows at once (§4.3).

A batch of N rows costs B(N) = a + b·N. With a = 0 and one row these are the tuple-wise priorities; with a > 0
larger batches are relatively cheaper, and policies that count the wait bound how long a small one waits.

A decision looks at the batches of all units that are ready, a thousand of them in well under a millisecond:
they are columns, and a policy is a function of columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slicemill.scheduling.arrays import Floats


@dataclass(frozen=True, slots=True)
class Batches:
    """The pending input of units that could run, a position for each; times are in seconds.

    A unit that others read stands for all of the way to the results (P2): its selectivity and its cost are
    those of the whole path.
    """

    rows: Floats
    """N, at least 1: a unit that only time has made ready counts as one row."""
    wait: Floats
    """W, of the oldest row; above 0, so that what has just come is still told apart by the rest (A12)."""
    selectivity: Floats
    """S: results per row, of all queries of the unit together."""
    overhead: Floats
    """a: what a run costs, however few its rows."""
    per_row: Floats
    """b."""
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
    def results(self) -> Floats:
        return self.selectivity * self.rows

    @property
    def time(self) -> Floats:
        """B(N)."""
        return self.time_of(self.rows)

    @property
    def ideal_time(self) -> Floats:
        """T: a batch of one row, with nothing else there."""
        return self.time_of(1.0)

    def time_of(self, rows: Floats | float) -> Floats:
        return self.overhead + self.per_row * rows


Priority: TypeAlias = Callable[[Batches], Floats]


def fcfs(batches: Batches) -> Floats:
    return batches.wait


def round_robin(batches: Batches) -> Floats:
    """In turn: who has not run for longest."""
    return batches.idle


def srpt(batches: Batches) -> Floats:
    return 1 / batches.time


def hr(batches: Batches) -> Floats:
    return batches.weight * batches.results / batches.time


def hnr(batches: Batches) -> Floats:
    return hr(batches) / batches.ideal_time


def lsf(batches: Batches) -> Floats:
    return batches.wait / batches.ideal_time


def brt(batches: Batches) -> Floats:
    return batches.wait * hr(batches)


def bsd(batches: Batches) -> Floats:
    return batches.wait * hr(batches) / batches.ideal_time**2


def chain(batches: Batches) -> Floats:
    """Rows that no longer wait, by second of work: the slope of Chain's line down to the end of the path."""
    return batches.rows / batches.time


def edf(batches: Batches) -> Floats:
    """Who has no deadline comes after all that have one."""
    return -batches.slack


def hybrid(batches: Batches) -> Floats:
    """EDF among those that can be in time, HR among the others; a late one goes before them if it is done by
    their first deadline (P25).

    Merging the two orders by that rule is one sort: a late batch goes in front of the deadlines that exceed
    its own time and that of every late batch before it.
    """
    work, key = batches.time, batches.slack.copy()
    late = np.flatnonzero(work > batches.slack)
    by_rate = late[np.lexsort((-batches.wait[late], -hr(batches)[late]))]
    key[by_rate] = np.maximum.accumulate(work[by_rate])
    turn = np.zeros(len(batches))
    turn[by_rate] = 1 + np.arange(len(by_rate))
    priority = np.empty(len(batches))
    priority[np.lexsort((-batches.wait, turn, key))] = -np.arange(len(batches), dtype=np.float64)
    return priority


def fas(batches: Batches, beta: float = 1.0) -> Floats:
    """What is most probably stale for the least work, each query of a unit counted (P32-P34).

    A join's productivity above 1 counts as 1.
    """
    counted = batches.rows**beta
    of_one = np.minimum(batches.selectivity / batches.outputs, 1.0)
    with np.errstate(divide="ignore"):
        stale = -np.expm1(counted * np.log1p(-of_one))
    return batches.weight * batches.outputs * stale / batches.time_of(counted)
