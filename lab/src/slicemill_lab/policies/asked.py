"""The product's policies, asked about single tuples: each is a batch of one row (P10).

What the loops need beside `choose` is taken from the same object: a policy that is linear in the wait is
asked twice for each unit, which gives the two numbers that the compiled loop works with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slicemill.scheduling.arrays import Floats, Positions
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.chooser import ranked
from slicemill.scheduling.policies.policy_registry import Policy
from slicemill.scheduling.portions import UnitFigures
from slicemill_lab.policies.policy import LEAST_WAIT, Queue, SimulatedUnit


class AskedPolicy:
    """A policy for these units; it remembers when each of them ran."""

    __slots__ = ("_ran", "figures", "policy")

    def __init__(self, policy: Policy, units: Sequence[SimulatedUnit]) -> None:
        self.policy = policy
        segments = [unit.segment for unit in units]
        self.figures = UnitFigures.unshared(
            results=np.array([float(segment.selectivity) for segment in segments]),
            overhead=0.0,
            per_row=np.array([float(segment.cost) for segment in segments]),
            ideal_time=np.array([float(segment.ideal_time) for segment in segments]),
            weight=np.array([unit.weight for unit in units]),
        )
        self._ran = np.zeros(len(units))

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        units = np.array([queue.unit for queue in ready])
        pending = np.array([float(len(queue)) for queue in ready])
        wait = np.maximum(now - np.array([queue.arrival for queue in ready]), LEAST_WAIT)
        tuples = self._tuples(units, pending, wait, now - self._ran[units])
        unit = ready[ranked(self.policy, tuples)[0]].unit
        self._ran[unit] = now
        return unit

    def by_wait(self) -> Floats:
        """For each unit c and g, in two rows, where its priority is c + g · wait."""
        if not self.policy.linear:
            raise ValueError(f"priorities of {self.policy.name} are not linear in the wait")
        units, once = np.arange(len(self._ran)), np.ones(len(self._ran))
        at_once = self.policy.priority(self._tuples(units, once, 0 * once, once))
        return np.array([at_once, self.policy.priority(self._tuples(units, once, once, once)) - at_once])

    def _tuples(self, units: Positions, pending: Floats, wait: Floats, idle: Floats) -> Batches:
        """The tuples at the heads of queues; none has a deadline, and a decision has no overhead."""
        one = np.ones(len(units))
        return Batches(
            units,
            self.figures,
            rows=one,
            worth=one,
            pending=pending,
            wait=wait,
            slack=np.inf * one,
            idle=idle,
        )
