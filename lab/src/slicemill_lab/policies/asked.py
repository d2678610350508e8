"""Adapter of the product's scheduling policies to single tuples: each tuple is a batch of one row (P10).

The adapter also derives priorities for the compiled loop. A policy that is linear in the waiting time is
evaluated at two points per unit, which gives the two coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slicemill.kernels.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.chooser import rank_batches
from slicemill.scheduling.policies import Policy
from slicemill.scheduling.portions import Positions, UnitColumns
from slicemill_lab.policies.policy import LEAST_WAIT, Queue, SimulatedUnit


class AskedPolicy:
    """One of the product's policies for these units. It remembers when each unit ran last."""

    __slots__ = ("_ran", "figures", "policy")

    def __init__(self, policy: Policy, units: Sequence[SimulatedUnit]) -> None:
        self.policy = policy
        segments = [unit.segment for unit in units]
        self.figures = UnitColumns.without_readers(
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
        unit = ready[rank_batches(self.policy, tuples)[0]].unit
        self._ran[unit] = now
        return unit

    def by_wait(self) -> Floats:
        """Return c and g per unit, in two rows, where the priority is c + g · wait."""
        if not self.policy.linear:
            raise ValueError(f"priorities of {self.policy.name} are not linear in the wait")
        units, once = np.arange(len(self._ran)), np.ones(len(self._ran))
        at_once = self.policy.priority(self._tuples(units, once, 0 * once, once))
        return np.array([at_once, self.policy.priority(self._tuples(units, once, once, once)) - at_once])

    def _tuples(self, units: Positions, pending: Floats, wait: Floats, idle: Floats) -> Batches:
        """Return the head tuples as batches without deadlines. Decisions have no overhead."""
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
