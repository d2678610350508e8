"""Maximum-Slope-Segment: the optimal schedule if the true cost of every queued tuple is known (M11, M12).

Each queue is partitioned into segments (M6). Segments run steepest first, and tuples of one queue keep their
order. The policy is a reference for comparisons, as a running system does not know costs in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slicemill_lab.charts.charts import Sloped, slope
from slicemill_lab.charts.partition import partition
from slicemill_lab.policies.policy import Queue, SimulatedTask


def mss_order(queues: Sequence[Sequence[Sloped]]) -> list[tuple[int, int]]:
    """Return the order for queues without further input, as (queue, position in the queue)."""
    segments = [(number, segment) for number, queue in enumerate(queues) for segment in partition(queue)]
    # A stable sort keeps the segments of one queue in order, because their slopes already descend.
    segments.sort(key=lambda item: slope(item[1]), reverse=True)
    return [(number, place) for number, segment in segments for place in range(segment.start, segment.stop)]


@dataclass(slots=True)
class _Line:
    """First segment of a queue: its slope, its remaining tuples, and the pending tuples of the queue."""

    slope: float
    left: int
    pending: int


class MaximumSlopeSegment:
    """Runs the head of the queue whose first segment is the steepest.

    The segment of a queue with new input is computed again. The memory variant on a path needs this, because
    the output tuple of one operator joins the queue of the next operator.
    """

    __slots__ = ("_lines", "expected", "weights")

    def __init__(self, weights: tuple[float, ...] = (), expected: tuple[float, ...] = ()) -> None:
        """`weights` multiply the slopes of tasks. Ties are broken by `expected`."""
        self.weights = weights
        self.expected = expected
        self._lines: dict[int, _Line] = {}

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        task = max(ready, key=self._key).task
        line = self._lines[task]
        line.left -= 1
        line.pending -= 1
        return task

    def _key(self, queue: Queue) -> tuple[float, float]:
        line = self._lines.get(queue.task)
        if line is None or line.left == 0 or line.pending != len(queue):
            line = self._lines[queue.task] = _first_line(queue)
        task = queue.task
        weight = self.weights[task] if self.weights else 1.0
        return line.slope * weight, self.expected[task] if self.expected else 0.0


def mss(tasks: Sequence[SimulatedTask]) -> MaximumSlopeSegment:  # noqa: ARG001
    """Return the policy. It needs no mean figures of tasks."""
    return MaximumSlopeSegment()


def _first_line(queue: Queue) -> _Line:
    slopes = np.cumsum(queue.drops) / np.cumsum(queue.times)
    left = len(slopes) - int(slopes[::-1].argmax())
    return _Line(float(slopes[left - 1]), left, len(queue))
