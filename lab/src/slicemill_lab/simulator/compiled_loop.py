"""Compiled scheduling loop, with shared operators and adaptive statistics.

The queue of operator k is the range `begin[k]` to `end[k]` of the workload's tuples, so the loop only moves
these borders.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.simulator.compiled import Compiled, next_task, queue_priority


class LoopPlan(NamedTuple):
    """Workload and tasks in the form that the loop reads. Operators are numbered path by path."""

    first_tuple: Int64s
    heads: Int64s
    """First operator of each task; `stops` is the operator after its last."""
    stops: Int64s
    at_root: Any
    cost: Floats
    outputs: Int64s
    arrival: Floats
    times: Floats
    drops: Floats
    """True time and drop of each tuple at a unit's head, for clairvoyant policies."""
    first_fed: Int64s
    """Operator k feeds `fed[first_fed[k]]` to `fed[first_fed[k + 1]]`, the leaves of other paths."""
    fed: Int64s
    at_once: Any
    """True for tasks that run together with the shared operator that feeds them."""


class Watch(NamedTuple):
    """Adaptive estimates of selectivities (P21). A window of 0 tuples disables them."""

    window: int
    alpha: float
    selectivity: Floats
    """Estimate for each operator, updated in place."""
    time: Floats
    prior: Floats
    """Initial estimates."""
    decays: bool
    """Estimates decay to the initial ones by one step per window of tuples that wait unprocessed (A14)."""


@register_jitable
def run_one(
    head: int,
    stop: int,
    begin: Any,
    end: Any,
    at_root: Any,
    cost: Any,
    outputs: Any,
    finished: Any,
    now: float,
) -> float:
    """Process one tuple at the unit's head and all of its descendants to the end of the task, depth first.

    Runs both compiled and as plain Python.
    """
    operator = head
    while True:
        place = begin[operator]
        begin[operator] = place + 1
        now += cost[place]
        finished[place] = now
        if not at_root[operator]:
            end[operator + 1] += outputs[place]
        # All deeper operators are drained, so the deepest input is at most one operator further.
        if operator + 1 < stop:
            operator += 1
        while operator > head and begin[operator] == end[operator]:
            operator -= 1
        if operator == head:
            return now


class _Queues(NamedTuple):
    """Queue data that policies read, in arrays per task, as every decision reads all tasks."""

    begin: Int64s
    end: Int64s
    task_at: Int64s
    pending: Int64s
    oldest: Floats
    by_queue: Floats


@njit(cache=True)
def run_compiled(
    times: Floats,
    leaves: Int64s,
    plan: LoopPlan,
    policy: Compiled,
    watch: Watch,
    overhead: float,
    finished: Floats,
) -> int:
    """Simulate until all arrivals are processed. Fills `finished`, and returns the number of decisions."""
    tasks = len(plan.heads)
    begin, end = plan.first_tuple[:-1].copy(), plan.first_tuple[:-1].copy()
    task_at = np.full(len(begin) + 1, -1, dtype=np.int64)
    task_at[plan.heads] = np.arange(tasks)
    queues = _Queues(begin, end, task_at, np.zeros(tasks, np.int64), np.zeros(tasks), np.zeros(tasks))
    seen = begin.copy()
    # Adaptive priorities are proportional to the rate; `multiple` are the factors.
    multiple = policy.parameters.copy()
    if watch.window:
        for task in range(tasks):
            multiple[:, task] /= _rate(plan.heads[task], plan, watch)
    admitted = decisions = 0
    now = 0.0
    while True:
        while admitted < len(times) and times[admitted] <= now:
            leaf = leaves[admitted]
            end[leaf] += 1
            task = task_at[leaf]
            _look(task, plan, policy, queues, False)
            admitted += 1
            if watch.decays and queues.pending[task] % watch.window == 0:
                _doubt(task, plan, watch)
                policy.parameters[:, task] = multiple[:, task] * _rate(plan.heads[task], plan, watch)
        best = next_task(policy, queues.pending, queues.oldest, queues.by_queue, now)
        if best < 0:
            if admitted == len(times):
                return decisions
            now = times[admitted]
            continue
        decisions += 1
        now = _run_task(best, plan, policy, queues, finished, now + overhead)
        if watch.window and _observe(best, plan, watch, seen, begin):
            policy.parameters[:, best] = multiple[:, best] * _rate(plan.heads[best], plan, watch)


@njit(cache=True, inline="always")
def _run_task(
    task: int, plan: LoopPlan, policy: Compiled, queues: _Queues, finished: Floats, now: float
) -> float:
    last = plan.stops[task] - 1
    made_before = queues.begin[last]
    now = run_one(
        plan.heads[task], plan.stops[task], queues.begin, queues.end,
        plan.at_root, plan.cost, plan.outputs, finished, now,
    )  # fmt: skip
    _look(task, plan, policy, queues, True)
    if not plan.at_root[last]:
        _look(queues.task_at[last + 1], plan, policy, queues, False)
        return now
    made = plan.outputs[made_before : queues.begin[last]].sum()
    for number in range(plan.first_fed[last], plan.first_fed[last + 1]):
        leaf = plan.fed[number]
        reader = queues.task_at[leaf]
        queues.end[leaf] += made
        while plan.at_once[reader] and queues.begin[leaf] < queues.end[leaf]:
            now = run_one(
                leaf, plan.stops[reader], queues.begin, queues.end,
                plan.at_root, plan.cost, plan.outputs, finished, now,
            )  # fmt: skip
        _look(reader, plan, policy, queues, False)
    return now


@njit(cache=True, inline="always")
def _look(task: int, plan: LoopPlan, policy: Compiled, queues: _Queues, has_run: bool) -> None:
    """Update the pending input of a task and the arrival of its oldest tuple."""
    head = plan.heads[task]
    first, stop = queues.begin[head], queues.end[head]
    if not has_run and stop - first == queues.pending[task]:
        return
    queues.pending[task] = stop - first
    if first < stop:
        queues.oldest[task] = plan.arrival[first]
    queues.by_queue[task] = queue_priority(
        policy, task, (first, stop), queues.by_queue[task], has_run, plan.times, plan.drops
    )


@njit(cache=True)
def _observe(task: int, plan: LoopPlan, watch: Watch, seen: Int64s, begin: Int64s) -> bool:
    """Update the selectivities of operators whose window is full. Return True if one has changed."""
    changed = False
    for operator in range(plan.heads[task], plan.stops[task]):
        inputs = begin[operator] - seen[operator]
        if inputs >= watch.window:
            outputs = plan.outputs[seen[operator] : begin[operator]].sum()
            watch.selectivity[operator] += watch.alpha * (outputs / inputs - watch.selectivity[operator])
            seen[operator] = begin[operator]
            changed = True
    return changed


@njit(cache=True)
def _doubt(task: int, plan: LoopPlan, watch: Watch) -> None:
    """Move the estimates of a task towards the initial ones, as a window of tuples waits unprocessed."""
    for operator in range(plan.heads[task], plan.stops[task]):
        watch.selectivity[operator] += watch.alpha * (watch.prior[operator] - watch.selectivity[operator])


@njit(cache=True)
def _rate(operator: int, plan: LoopPlan, watch: Watch) -> float:
    """Return the estimated results per time from this operator to the root (P2)."""
    cost, reached = 0.0, 1.0
    while True:
        cost += reached * watch.time[operator]
        reached *= watch.selectivity[operator]
        if plan.at_root[operator]:
            rate: float = reached / cost
            return rate
        operator += 1
