"""Compiled policies: selection of the next task for policies that consist of numbers per task.

`parameters` has a column per task, and rows that depend on the kind of policy. `memory` is the policy's state
between decisions. The decisions are those of the choosers' own `choose`, computed hundreds of times faster.
For the product's policies the numbers are derived from the policy itself. The priority of FAS, which depends
on the pending tuples, is the policy's function, compiled.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats, Int64s
from slicemill.scheduling import priorities as fas
from slicemill.scheduling.portions import Aim
from slicemill_lab.policies.asked import AskedPolicy
from slicemill_lab.policies.mss import MaximumSlopeSegment
from slicemill_lab.policies.policy import LEAST_WAIT, ByPriority, TupleChooser
from slicemill_lab.policies.time_slices import TimeSlices

_PRIORITIES, _FRESHNESS, _SLICES, _FORESIGHT = 0, 1, 2, 3
_freshness: Any = njit(cache=True)(fas.value)


class Compiled(NamedTuple):
    """Policy in compiled form."""

    kind: int
    parameters: Floats
    memory: Floats


def compiled_form(policy: TupleChooser, tasks: int) -> Compiled | None:
    """Return the compiled form of a policy, or None if it has none."""
    match policy:
        case ByPriority():
            return Compiled(_PRIORITIES, np.array([policy.fixed, policy.per_wait]), np.zeros(1))
        case AskedPolicy() if policy.policy.linear:
            return Compiled(_PRIORITIES, policy.by_wait(), np.zeros(1))
        case AskedPolicy() if policy.policy.formula == "fas_priority":
            known, beta = policy.figures, policy.policy.beta
            figures = np.array([known.selectivity, known.portions[Aim.ALL, 2], known.weight])
            return Compiled(_FRESHNESS, figures, np.array([1.0 if beta is None else beta]))
        case TimeSlices():
            return Compiled(_SLICES, np.zeros((1, 1)), np.array([policy.quantum, 0.0, -math.inf]))
        case MaximumSlopeSegment():
            rows = [policy.weights or (1.0,) * tasks, policy.expected or (0.0,) * tasks]
            return Compiled(_FORESIGHT, np.array(rows), np.zeros(tasks))
    return None


def sees_ahead(policy: Compiled) -> bool:
    """Return True if the policy needs the true time and output of every tuple."""
    return policy.kind == _FORESIGHT


@njit(cache=True)
def queue_priority(
    policy: Compiled,
    task: int,
    waiting: tuple[int, int],
    before: float,
    has_run: bool,
    times: Floats,
    drops: Floats,
) -> float:
    """Return the priority of a task under a policy that inspects pending tuples, `waiting[0]` to
    `waiting[1]`.

    `before` is the previous priority. `has_run` is True after a run of the task, and False after new input.
    `times` and `drops` are the true values of every tuple, for clairvoyant policies.
    """
    first, stop = waiting
    if first == stop:
        return 0.0
    if policy.kind == _FRESHNESS:
        figures, beta = policy.parameters[:, task], policy.memory[0]
        pending = float(stop - first)
        priority: float = _freshness(pending, figures[0], 0.0, figures[1], figures[2], 1.0, beta)
        return priority
    if policy.kind == _FORESIGHT:
        policy.memory[task] -= 1
        if has_run and policy.memory[task] > 0:
            return before
        return _steepest(policy, task, first, stop, times, drops)
    return 0.0


@njit(cache=True)
def _steepest(policy: Compiled, task: int, first: int, stop: int, times: Floats, drops: Floats) -> float:
    """Return the slope of the steepest line from the head of the queue, and remember its number of tuples."""
    time = drop = 0.0
    best = -math.inf
    for place in range(first, stop):
        time += times[place]
        drop += drops[place]
        if drop / time >= best:
            best = drop / time
            policy.memory[task] = place + 1 - first
    weighted: float = best * policy.parameters[0, task]
    return weighted


@njit(cache=True)
def next_task(policy: Compiled, pending: Int64s, oldest: Floats, by_queue: Floats, now: float) -> int:
    """Return the task to run, or -1, from pending tuples, arrivals of heads and queue priorities."""
    if policy.kind == _SLICES:
        return _next_in_turn(policy.memory, pending, now)
    parameters = policy.parameters
    best = -1
    best_value = best_base = 0.0
    for task in range(len(pending)):
        if pending[task] == 0:
            continue
        if policy.kind == _PRIORITIES:
            base = 0.0
            value = parameters[0, task] + parameters[1, task] * max(now - oldest[task], LEAST_WAIT)
        else:
            base = parameters[1, task] if policy.kind == _FORESIGHT else 0.0
            value = by_queue[task]
        if best >= 0 and value < best_value:
            continue
        if (
            best < 0
            or value > best_value
            or base > best_base
            or (base == best_base and oldest[task] < oldest[best] and policy.kind != _FORESIGHT)
        ):
            best, best_value, best_base = task, value, base
    return best


@njit(cache=True)
def _next_in_turn(memory: Floats, pending: Int64s, now: float) -> int:
    quantum, current, since = memory[0], int(memory[1]), memory[2]
    if now - since < quantum and pending[current]:
        return current
    for step in range(1, len(pending) + 1):
        task = (current + step) % len(pending)
        if pending[task]:
            memory[1], memory[2] = task, now
            return task
    return -1
