"""Adapter of the product's scheduling policies to single tuples: each tuple is a batch of one row (P10).

The adapter also derives priorities for the compiled loop. A policy that is linear in the waiting time is
evaluated at two points per task, which gives the two coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slicemill.kernels.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.chooser import rank_batches
from slicemill.scheduling.policies import Policy
from slicemill.scheduling.portions import Positions, TaskColumns
from slicemill_lab.policies.policy import LEAST_WAIT, Queue, SimulatedTask


class AskedPolicy:
    """One of the product's policies for these tasks. It remembers when each task ran last."""

    __slots__ = ("_ran", "figures", "policy")

    def __init__(self, policy: Policy, tasks: Sequence[SimulatedTask]) -> None:
        self.policy = policy
        segments = [task.segment for task in tasks]
        self.figures = TaskColumns.without_readers(
            results=np.array([float(segment.selectivity) for segment in segments]),
            overhead=0.0,
            per_row=np.array([float(segment.cost) for segment in segments]),
            ideal_time=np.array([float(segment.ideal_time) for segment in segments]),
            weight=np.array([task.weight for task in tasks]),
        )
        self._ran = np.zeros(len(tasks))

    def choose(self, ready: Sequence[Queue], now: float) -> int:
        tasks = np.array([queue.task for queue in ready])
        pending = np.array([float(len(queue)) for queue in ready])
        wait = np.maximum(now - np.array([queue.arrival for queue in ready]), LEAST_WAIT)
        tuples = self._tuples(tasks, pending, wait, now - self._ran[tasks])
        task = ready[rank_batches(self.policy, tuples)[0]].task
        self._ran[task] = now
        return task

    def by_wait(self) -> Floats:
        """Return c and g per task, in two rows, where the priority is c + g · wait."""
        if not self.policy.linear:
            raise ValueError(f"priorities of {self.policy.name} are not linear in the wait")
        tasks, once = np.arange(len(self._ran)), np.ones(len(self._ran))
        at_once = self.policy.priority(self._tuples(tasks, once, 0 * once, once))
        return np.array([at_once, self.policy.priority(self._tuples(tasks, once, once, once)) - at_once])

    def _tuples(self, tasks: Positions, pending: Floats, wait: Floats, idle: Floats) -> Batches:
        """Return the head tuples as batches without deadlines. Decisions have no overhead."""
        one = np.ones(len(tasks))
        return Batches(
            tasks,
            self.figures,
            rows=one,
            worth=one,
            pending=pending,
            wait=wait,
            slack=np.inf * one,
            idle=idle,
        )
