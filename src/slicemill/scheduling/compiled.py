"""Policies as machine code: which unit is next, for the kinds of policy that are numbers per unit.

`parameters` has a column per unit, its rows depend on the kind; `memory` is what the policy remembers between
decisions. The same choices as the policies' own `choose`, hundreds of times as fast.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from slicemill.scheduling.fas import FreshnessAware
from slicemill.scheduling.policy import ByPriority, Floats, Policy
from slicemill.scheduling.time_slices import TimeSlices
from slicemill.scheduling.workload import Ints

_PRIORITIES, _FRESHNESS, _SLICES = 0, 1, 2


def parameters_of(policy: Policy) -> tuple[int, Floats, Floats] | None:
    """Kind, parameters and memory of a policy that has a compiled form."""
    if isinstance(policy, ByPriority):
        return _PRIORITIES, np.array([policy.fixed, policy.per_wait]), np.zeros(1)
    if isinstance(policy, FreshnessAware):
        rows = [policy.selectivities, policy.costs, policy.weights]
        return _FRESHNESS, np.array(rows), np.array([policy.beta])
    if isinstance(policy, TimeSlices):
        return _SLICES, np.zeros((1, 1)), np.array([policy.quantum, 0.0, -math.inf])
    return None


@njit(cache=True)
def count_priority(kind: int, parameters: Floats, memory: Floats, unit: int, pending: int) -> float:
    """The priority of a unit under a policy that looks at how much is pending."""
    if kind != _FRESHNESS or pending == 0:
        return 0.0
    counted = float(pending) ** memory[0]
    likely = 1.0
    if parameters[0, unit] < 1.0:
        likely = -math.expm1(counted * math.log1p(-parameters[0, unit]))
    priority: float = parameters[2, unit] * likely / (counted * parameters[1, unit])
    return priority


@njit(cache=True)
def next_unit(
    kind: int,
    parameters: Floats,
    memory: Floats,
    pending: Ints,
    oldest: Floats,
    by_count: Floats,
    now: float,
) -> int:
    """The unit to run, -1 if none has input: by pending tuples, arrival of the head, `count_priority`."""
    if kind == _SLICES:
        return _next_in_turn(memory, pending, now)
    best = -1
    best_value = best_base = 0.0
    for unit in range(len(pending)):
        if pending[unit] == 0:
            continue
        if kind == _PRIORITIES:
            base = parameters[0, unit] + parameters[1, unit]
            value = parameters[0, unit] + parameters[1, unit] * (now - oldest[unit])
        else:
            base = 0.0
            value = by_count[unit]
        if best >= 0 and value < best_value:
            continue
        if (
            best < 0
            or value > best_value
            or base > best_base
            or (base == best_base and oldest[unit] < oldest[best])
        ):
            best, best_value, best_base = unit, value, base
    return best


@njit(cache=True)
def _next_in_turn(memory: Floats, pending: Ints, now: float) -> int:
    quantum, current, since = memory[0], int(memory[1]), memory[2]
    if now - since < quantum and pending[current]:
        return current
    for step in range(1, len(pending) + 1):
        unit = (current + step) % len(pending)
        if pending[unit]:
            memory[1], memory[2] = unit, now
            return unit
    return -1
