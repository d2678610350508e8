"""Priorities of all policies, on one page: the unit with the greatest priority runs first (P11-P24).

A priority is a function of columns (`scheduling.batches`), with one row per ready unit. The driver,
`slicemill simulate` and the simulator of the lab use the same functions (`scheduling.policies`). A priority
has no state between two decisions, so a policy can be replaced at any time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def fcfs_priority(batches: Batches) -> Floats:
    """Return the wait: first come, first served; minimises the longest response time (P11)."""
    return batches.wait


def round_robin_priority(batches: Batches) -> Floats:
    """Return the time since the unit's last run: round robin, a baseline (P11)."""
    return batches.idle


def srpt_priority(batches: Batches) -> Floats:
    """Shortest remaining processing time: who is done soonest, if every row passes all of the way (P11)."""
    _, per_row = batches.cost()
    return 1 / (batches.ideal_time + per_row * (batches.rows - 1))


def rb_priority(batches: Batches) -> Floats:
    """Rate based: the path to one query that gives most results by time; best within a query (P11).

    Results of several queries that a unit serves are not added up: that is `hr`.
    """
    return batches.rate(Aim.PATH)


_NO_RESULT = 1e-300


def ml_priority(batches: Batches) -> Floats:
    """Min-latency: the least work until one more result; within a query it orders as `rb` does (P11).

    To give one result at the end, an operator handles one over the selectivity of the rest of the path,
    so the work until one result is Σ c / S = C̄ / S.
    """
    return -1 / np.maximum(batches.rate(Aim.PATH), _NO_RESULT)


def hr_priority(batches: Batches) -> Floats:
    """Highest rate: most results per time, each as much as it matters; best for the mean response time
    (P12).
    """
    return batches.rate(Aim.RESPONSE)


def hnr_priority(batches: Batches) -> Floats:
    """Highest normalised rate: results over their ideal times, by time; best for the mean slowdown (P13)."""
    return batches.rate(Aim.SLOWDOWN)


def lsf_priority(batches: Batches) -> Floats:
    """Longest stretch first: the greatest slowdown so far first; best for the greatest slowdown (P14)."""
    return batches.wait * (1 / batches.ideal_time)


def brt_priority(batches: Batches) -> Floats:
    """Balance response time: rate times the wait so far; best for the ℓ2 norm of response times (P16)."""
    return batches.wait * batches.rate(Aim.RESPONSE)


def bsd_priority(batches: Batches) -> Floats:
    """Return normalised rate times slowdown so far; minimises the ℓ2 norm of slowdowns (P15)."""
    return batches.wait * batches.rate(Aim.BALANCE)


# Freshness-aware scheduling: what is most probably stale for the least work, each query counted (P32-P34).
#
# With N rows pending, an output is stale with probability 1 - (1 - S)^N, and B(N) of work makes it fresh.
# The exponent β of N turns from freshness (1) to response time (0, where it is the highest rate).


def value(
    pending: Floats,
    selectivity: Floats,
    overhead: Floats,
    per_row: Floats,
    weight: Floats,
    outputs: Floats,
    beta: float,
) -> Floats:
    """The priority, where a join's productivity above 1 counts as 1.

    The simulator compiles it for single numbers.
    """
    counted = pending**beta
    stale: Floats = -np.expm1(counted * np.log1p(-np.minimum(selectivity, 1.0)))
    return weight * outputs * stale / (overhead + per_row * counted)


def fas_priority(batches: Batches, beta: float = 1.0) -> Floats:
    figures, units = batches.figures, batches.units
    overhead, per_row = batches.cost()
    with np.errstate(divide="ignore"):  # where every row is a result
        return value(
            batches.pending,
            figures.selectivity[units],
            overhead,
            per_row,
            figures.weight[units],
            figures.queries[units],
            beta,
        )


def chain_priority(batches: Batches) -> Floats:
    """Chain: most rows that no longer wait by second of work; best for the rows that wait (P11, M7).

    The slope is that of the first line in the chart of all that lies behind a unit. What follows on the
    same line is at least as steep, so it runs next; what lies behind a cut of the chart waits for its own
    turn.
    """
    return batches.rate(Aim.MEMORY)


def edf_priority(batches: Batches) -> Floats:
    """Earliest deadline first; meets all service levels while they can be met (P24).

    Who has no deadline comes after all that have one.
    """
    return -batches.slack


# EDF among those that can be in time, highest rate among the others; best for tardiness (P25).
#
# A late batch goes first if it is done by the first deadline of those in time. That needs no parameter.


def late(time: Floats, slack: Floats) -> npt.NDArray[np.bool_]:
    """Whether a batch that takes this time misses its deadline, even if it runs now.

    The simulator of aggregates compiles it for single numbers.
    """
    return time > slack


def hybrid_priority(batches: Batches) -> Floats:
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
