"""Fixed queues as a policy sees them, for tests that call a policy directly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slicemill.kernels.arrays import Floats
from slicemill_lab.charts.charts import Piece
from slicemill_lab.charts.segments import SegmentFigures
from slicemill_lab.policies.policy import SimulatedTask


@dataclass
class FixedQueue:
    task: int
    times: Floats = field(default_factory=lambda: np.ones(1))
    drops: Floats = field(default_factory=lambda: np.ones(1))
    arrival: float = 0.0

    @property
    def head_slope(self) -> float:
        return float(self.drops[0] / self.times[0])

    def __len__(self) -> int:
        return len(self.times)


def queue(task: int, times: Sequence[float] = (1,), arrival: float = 0.0) -> FixedQueue:
    """Return a queue with one output for each tuple."""
    return FixedQueue(task, np.array(times, dtype=float), np.ones(len(times)), arrival)


def task(time: float, drop: float = 1) -> SimulatedTask:
    return SimulatedTask(f"task of {time}", Piece(time, drop), SegmentFigures(drop, time, time))
