"""Maximum-Slope-Segment: the best schedule there is when every queued tuple's true cost is known (M11, M12).

Each queue is cut into segments (M6); segments run steepest first, and tuples of one queue keep their order.
It is a yardstick, since a running system does not know costs beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slicemill.scheduling.charts import Sloped, slope
from slicemill.scheduling.partition import partition
from slicemill.scheduling.policy import Queue, Unit


def mss_order(queues: Sequence[Sequence[Sloped]]) -> list[tuple[int, int]]:
    """The order for queues that get no more input, as (queue, position in it)."""
    segments = [(number, segment) for number, queue in enumerate(queues) for segment in partition(queue)]
    # A stable sort keeps the segments of one queue in order, because their slopes already descend.
    segments.sort(key=lambda item: slope(item[1]), reverse=True)
    return [(number, place) for number, segment in segments for place in range(segment.start, segment.stop)]


class MaximumSlopeSegment:
    """Runs the head of the queue whose first segment is the steepest.

    Looking again at each point is what the memory variant on a path needs, where a tuple that one operator
    produces joins the queue of the next. Without new input nothing changes by it: what is left of a segment
    is at least as steep as the whole was.
    """

    __slots__ = ()

    def choose(self, ready: Sequence[Queue], now: float) -> int:  # noqa: ARG002
        return max(ready, key=_first_segment_slope).unit


def mss(units: Sequence[Unit]) -> MaximumSlopeSegment:  # noqa: ARG001
    """The same for any units: it needs no mean figures."""
    return MaximumSlopeSegment()


def _first_segment_slope(queue: Queue) -> float:
    return float((np.cumsum(queue.drops) / np.cumsum(queue.times)).max())
