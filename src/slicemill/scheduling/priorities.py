"""Priorities of all policies: the greatest priority runs first (P11-P24).

A priority is a function of columns (`scheduling.batches.Batches`) with one entry per ready task. The driver,
`slicemill simulate` and the lab's simulator use the same functions. A priority depends on no earlier
decision, so a policy can be replaced at any time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def fcfs_priority(batches: Batches) -> Floats:
    """First come, first served: the wait. Minimises the longest response time (P11)."""
    return batches.wait


def round_robin_priority(batches: Batches) -> Floats:
    """Round robin: the time since the task's last run. A baseline (P11)."""
    return batches.idle


def srpt_priority(batches: Batches) -> Floats:
    """Shortest remaining processing time: the least work to process all rows (P11).

    The work includes all downstream tasks, as if no operator dropped a row.
    """
    _, per_row = batches.cost()
    return 1 / (batches.ideal_time + per_row * (batches.rows - 1))


def rb_priority(batches: Batches) -> Floats:
    """Rate based: results per second on the best path (P11).

    Optimal within one query. `hr_priority` adds up the results of all queries that a task serves.
    """
    return batches.rate(Aim.PATH)


_NO_RESULT = 1e-300


def ml_priority(batches: Batches) -> Floats:
    """Min-latency: the least work until the next result (P11).

    Within one query the order is that of `rb_priority`. An operator must process 1 / S rows for one result,
    where S is the selectivity of the rest of the path. So the work until one result is Σ c / S = C̄ / S.
    """
    return -1 / np.maximum(batches.rate(Aim.PATH), _NO_RESULT)


def hr_priority(batches: Batches) -> Floats:
    """Highest rate: weighted results per second. Minimises the mean response time (P12)."""
    return batches.rate(Aim.RESPONSE)


def hnr_priority(batches: Batches) -> Floats:
    """Highest normalised rate: results over ideal time, per second.

    Minimises the mean slowdown (P13).
    """
    return batches.rate(Aim.SLOWDOWN)


def lsf_priority(batches: Batches) -> Floats:
    """Longest stretch first: the slowdown so far. Minimises the greatest slowdown (P14)."""
    return batches.wait * (1 / batches.ideal_time)


def brt_priority(batches: Batches) -> Floats:
    """Balance response time: rate times wait.

    Minimises the ℓ2 norm of response times (P16).
    """
    return batches.wait * batches.rate(Aim.RESPONSE)


def bsd_priority(batches: Batches) -> Floats:
    """Balance slowdown: normalised rate times slowdown so far.

    Minimises the ℓ2 norm of slowdowns (P15).
    """
    return batches.wait * batches.rate(Aim.BALANCE)


# Freshness-aware scheduling: stale results that become fresh per second of work (P32-P34).
#
# With N pending rows, an output is stale with probability 1 - (1 - S)^N, and work of B(N) makes it fresh. N
# has the exponent β: β = 1 optimises freshness, β = 0 optimises response time as `hr_priority` does.


def value(
    pending: Floats,
    selectivity: Floats,
    overhead: Floats,
    per_row: Floats,
    weight: Floats,
    outputs: Floats,
    beta: float,
) -> Floats:
    """Return the priority of `fas`.

    Selectivities above 1, as of joins, count as 1. The lab's simulator compiles this function for scalars.
    """
    counted = pending**beta
    stale: Floats = -np.expm1(counted * np.log1p(-np.minimum(selectivity, 1.0)))
    return weight * outputs * stale / (overhead + per_row * counted)


def fas_priority(batches: Batches, beta: float = 1.0) -> Floats:
    figures, tasks = batches.figures, batches.tasks
    overhead, per_row = batches.cost()
    with np.errstate(divide="ignore"):  # log(0) for selectivity 1
        return value(
            batches.pending,
            figures.selectivity[tasks],
            overhead,
            per_row,
            figures.weight[tasks],
            figures.queries[tasks],
            beta,
        )


def chain_priority(batches: Batches) -> Floats:
    """Chain: rows that stop waiting per second of work.

    Minimises pending rows (P11, M7). The priority is the slope of the first segment in the progress chart of
    the task and its downstream tasks. A downstream task on the same segment has at least this slope, so it
    runs next. Downstream tasks behind a cut of the chart have their own, lower priority.
    """
    return batches.rate(Aim.MEMORY)


def edf_priority(batches: Batches) -> Floats:
    """Earliest deadline first. Meets all service levels if that is possible (P24).

    Tasks without a deadline run last.
    """
    return -batches.slack


# Hybrid: EDF for batches that can meet their deadline, highest rate for late batches (P25).
#
# Minimises tardiness. A late batch runs first if it ends before the earliest deadline that can still be met.
# The policy has no parameter.


def late(time: Floats, slack: Floats) -> npt.NDArray[np.bool_]:
    """Return True for batches that miss their deadline even if run now.

    The lab's simulator of aggregates compiles this function for scalars.
    """
    return time > slack


def hybrid_priority(batches: Batches) -> Floats:
    """Merge EDF order and order of late batches in one sort.

    The sort key of a late batch is its own work plus the work of all late batches before it. So it precedes
    the batches with later deadlines.
    """
    overhead, per_row = batches.cost()
    # A batch meets its deadline only if all its pending rows are processed by then.
    work, key = overhead + per_row * batches.pending, batches.slack.copy()
    missed = np.flatnonzero(late(work, batches.slack))
    by_rate = missed[np.lexsort((-batches.wait[missed], -batches.rate(Aim.RESPONSE)[missed]))]
    key[by_rate] = np.maximum.accumulate(work[by_rate])
    turn = np.zeros(len(batches))
    turn[by_rate] = 1 + np.arange(len(by_rate))
    priorities = np.empty(len(batches))
    priorities[np.lexsort((-batches.wait, turn, key))] = -np.arange(len(batches), dtype=np.float64)
    return priorities
