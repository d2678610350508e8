"""EDF among those that can be in time, highest rate among the others; best for tardiness (P25).

A late batch goes first if it is done by the first deadline of those in time. That needs no parameter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def late(time: Floats, slack: Floats) -> npt.NDArray[np.bool_]:
    """Whether a batch that takes this time misses its deadline, even if it runs now.

    The simulator of aggregates compiles it for single numbers.
    """
    return time > slack


def priority(batches: Batches) -> Floats:
    """The order of all, merged from both by one sort.

    A late batch goes in front of the deadlines that exceed its own time and that of every late one before it.
    """
    overhead, per_row = batches.cost()
    # All that waits has to be done by the deadline, however it is cut into runs.
    work, key = overhead + per_row * batches.pending, batches.slack.copy()
    missed = np.flatnonzero(late(work, batches.slack))
    by_rate = missed[np.lexsort((-batches.wait[missed], -batches.rate(Aim.RESPONSE)[missed]))]
    key[by_rate] = np.maximum.accumulate(work[by_rate])
    turn = np.zeros(len(batches))
    turn[by_rate] = 1 + np.arange(len(by_rate))
    priorities = np.empty(len(batches))
    priorities[np.lexsort((-batches.wait, turn, key))] = -np.arange(len(batches), dtype=np.float64)
    return priorities
