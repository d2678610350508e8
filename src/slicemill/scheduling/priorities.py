"""Priority functions of all scheduling policies: the batch with the greatest priority runs first.

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
    """First come, first served: return the wait of the oldest pending row of each task.

    Minimises the longest response time (P11).
    """
    return batches.wait


def round_robin_priority(batches: Batches) -> Floats:
    """Round robin: return the time since the last run of each task. Used as a baseline (P11)."""
    return batches.idle


def srpt_priority(batches: Batches) -> Floats:
    """Shortest remaining processing time: prefer the task with the least work on its pending rows.

    The work includes that of all downstream tasks, as if no operator dropped a row.
    """
    _, per_row = batches.cost()
    return 1 / (batches.ideal_time + per_row * (batches.rows - 1))


def rb_priority(batches: Batches) -> Floats:
    """Rate based: return the results per second of work on the best path from a task to a query.

    The policy is optimal within one query. `hr_priority` adds up the results of all queries that a task
    serves.
    """
    return batches.rate(Aim.PATH)


_NO_RESULT = 1e-300


def ml_priority(batches: Batches) -> Floats:
    """Min-latency: prefer the task with the least work until its next result.

    Within one query the order is that of `rb_priority`. An operator must process 1 / S rows for one result,
    where S is the selectivity of the rest of the path. So the work until one result is Σ c / S = C̄ / S.
    """
    return -1 / np.maximum(batches.rate(Aim.PATH), _NO_RESULT)


def hr_priority(batches: Batches) -> Floats:
    """Highest rate: return weighted results per second of work. Minimises the mean response time (P12)."""
    return batches.rate(Aim.RESPONSE)


def hnr_priority(batches: Batches) -> Floats:
    """Highest normalised rate: return results divided by ideal time, per second of work.

    The ideal time of a query is its response time without other load. The value is summed over all queries.
    This policy minimises the mean slowdown (P13).
    """
    return batches.rate(Aim.SLOWDOWN)


def lsf_priority(batches: Batches) -> Floats:
    """Longest stretch first: return the slowdown (wait / ideal time) so far. Minimises its maximum (P14)."""
    return batches.wait * (1 / batches.ideal_time)


def brt_priority(batches: Batches) -> Floats:
    """Balance response time: return results per second of work, multiplied by the wait.

    Minimises the ℓ2 norm of response times (P16).
    """
    return batches.wait * batches.rate(Aim.RESPONSE)


def bsd_priority(batches: Batches) -> Floats:
    """Balance slowdown: return normalised results per second of work, multiplied by the slowdown so far.

    Minimises the ℓ2 norm of slowdowns (P15).
    """
    return batches.wait * batches.rate(Aim.BALANCE)


# Freshness-aware scheduling counts the stale results that become fresh per second of work (P32-P34).
#
# With N pending rows and selectivity S, an output is stale with probability 1 - (1 - S)^N. The work B(N)
# makes it fresh. The formula uses N^β for N: β = 1 optimises freshness, β = 0 optimises response time as
# `hr_priority` does.


def value(
    pending: Floats,
    selectivity: Floats,
    overhead: Floats,
    per_row: Floats,
    weight: Floats,
    outputs: Floats,
    beta: float,
) -> Floats:
    """Return the stale outputs that become fresh per second of work (priority of the policy `fas`).

    Selectivities above 1, as of joins, count as 1. The lab's simulator compiles this function for scalars.
    """
    counted = pending**beta
    stale: Floats = -np.expm1(counted * np.log1p(-np.minimum(selectivity, 1.0)))
    return weight * outputs * stale / (overhead + per_row * counted)


def fas_priority(batches: Batches, beta: float = 1.0) -> Floats:
    figures, tasks = batches.figures, batches.tasks
    overhead, per_row = batches.cost()
    with np.errstate(divide="ignore"):  # log(0) occurs for selectivity 1
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
    """Chain: return how many rows stop being pending, per second of work.

    Minimises pending rows (P11, M7). The progress chart of a task and its downstream tasks shows pending rows
    over work. The priority is the slope of the first segment of this chart. A downstream task on the same
    segment has at least this slope, so it runs next. Downstream tasks of later segments have their own, lower
    priority.
    """
    return batches.rate(Aim.MEMORY)


def edf_priority(batches: Batches) -> Floats:
    """Earliest deadline first: meet all deadlines of service levels if that is possible (P24).

    Tasks without a deadline run last.
    """
    return -batches.slack


# Hybrid policy: earliest deadline first, but highest rate for batches that miss their deadline (P25).
#
# The policy minimises the delay after the deadlines. A late batch runs first if it ends before the earliest
# deadline that can still be met. The policy has no parameter.


def late(time: Floats, slack: Floats) -> npt.NDArray[np.bool_]:
    """Return a mask of the batches that would miss their deadline even if they ran now.

    The lab's simulator of aggregates compiles this function for scalars.
    """
    return time > slack


def hybrid_priority(batches: Batches) -> Floats:
    """Hybrid policy: merge batches ordered by deadline with late batches ordered by rate.

    The sort key of a late batch is its own work plus the work of all late batches before it. So a late batch
    precedes the batches with later deadlines.
    """
    overhead, per_row = batches.cost()
    # A batch meets its deadline only if all its pending rows are processed before the deadline.
    work, key = overhead + per_row * batches.pending, batches.slack.copy()
    missed = np.flatnonzero(late(work, batches.slack))
    by_rate = missed[np.lexsort((-batches.wait[missed], -batches.rate(Aim.RESPONSE)[missed]))]
    key[by_rate] = np.maximum.accumulate(work[by_rate])
    turn = np.zeros(len(batches))
    turn[by_rate] = 1 + np.arange(len(by_rate))
    priorities = np.empty(len(batches))
    priorities[np.lexsort((-batches.wait, turn, key))] = -np.arange(len(batches), dtype=np.float64)
    return priorities
