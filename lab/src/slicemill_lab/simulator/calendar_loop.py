"""Simulation of freshness-aware scheduling with a calendar queue that charges its operations (P35).

Tasks are whole queries. A priority is recomputed only after new input or after a tuple has run.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats, Int64s
from slicemill.scheduling.portions import Aim
from slicemill_lab.policies.asked import AskedPolicy
from slicemill_lab.simulator.calendar_queue import CalendarQueue, calendar_queue, pop, put
from slicemill_lab.simulator.compiled import Compiled, compiled_form, queue_priority
from slicemill_lab.simulator.compiled_loop import run_one
from slicemill_lab.simulator.loop import SimulatedRun, arrivals_of
from slicemill_lab.simulator.workload import Workload


def simulate_calendar(
    work: Workload, policy: AskedPolicy, *, buckets: int = 64, operation: float = 0.0
) -> SimulatedRun:
    """Simulate the workload. `operation` is the time to insert a query into the queue or to remove one."""
    compiled = compiled_form(policy, len(work.paths))
    assert compiled is not None
    greatest = float((policy.figures.weight / policy.figures.portions[Aim.ALL, 2]).max())
    queue = calendar_queue(len(work.paths), greatest * 1e-6, greatest, buckets)
    times, leaves = arrivals_of(work)
    finished = np.empty(work.steps)
    decisions = _loop(
        times, leaves, work.first_operator, work.first_tuple, work.cost, work.outputs,
        compiled, queue, operation, finished,
    )  # fmt: skip
    return SimulatedRun(work, finished, decisions)


@njit(cache=True)
def _loop(
    times: Floats,
    leaves: Int64s,
    first_operator: Int64s,
    first_tuple: Int64s,
    cost: Floats,
    outputs: Int64s,
    policy: Compiled,
    queue: CalendarQueue,
    operation: float,
    finished: Floats,
) -> int:
    begin, end = first_tuple[:-1].copy(), first_tuple[:-1].copy()
    query_of = np.searchsorted(first_operator, leaves)
    at_root = np.zeros(len(begin), np.bool_)
    at_root[first_operator[1:] - 1] = True
    unused = np.zeros(1)
    admitted = decisions = 0
    now = 0.0
    while True:
        while admitted < len(times) and times[admitted] <= now:
            query, leaf = query_of[admitted], leaves[admitted]
            end[leaf] += 1
            waiting = (begin[leaf], end[leaf])
            put(queue, query, queue_priority(policy, query, waiting, 0.0, False, unused, unused))
            now += operation
            admitted += 1
        query = pop(queue)
        if query < 0:
            if admitted == len(times):
                return decisions
            now = times[admitted]
            continue
        decisions += 1
        leaf = first_operator[query]
        stop = first_operator[query + 1]
        now = run_one(leaf, stop, begin, end, at_root, cost, outputs, finished, now + operation)
        if begin[leaf] < end[leaf]:
            waiting = (begin[leaf], end[leaf])
            put(queue, query, queue_priority(policy, query, waiting, 0.0, True, unused, unused))
            now += operation
