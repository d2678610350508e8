"""Calendar queue: priorities in buckets, so that a decision takes constant time (P35).

Priorities that do not depend on the clock (FAS) change only when a task gets input or has run, so only these
tasks change their bucket. Buckets are logarithmic: the priority of the task found is within the factor of one
bucket of the best. A bucket is a linked list in arrays, so that the queue works in compiled loops.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Int64s

_NONE = -1


class CalendarQueue(NamedTuple):
    """Items from 0, with priorities from `least` up. Priorities out of range use the outermost buckets."""

    least: float
    step: float
    first: Int64s
    last: Int64s
    before: Int64s
    after: Int64s
    place: Int64s
    """Bucket of each item."""
    top: Int64s
    """Upper bound of the non-empty buckets."""


def calendar_queue(items: int, least: float, greatest: float, buckets: int) -> CalendarQueue:
    """Return an empty queue for a number of items."""
    if not 0 < least <= greatest or buckets < 1:
        raise ValueError("a calendar queue needs 0 < least <= greatest and at least one bucket")
    step = math.log(greatest / least) / buckets or 1.0
    ends = [np.full(count, _NONE, np.int64) for count in (buckets, buckets, items, items, items, 1)]
    return CalendarQueue(least, step, *ends)


@njit(cache=True)
def put(queue: CalendarQueue, item: int, priority: float) -> None:
    """Insert or move an item. It becomes the last item of its bucket."""
    discard(queue, item)
    bucket = 0
    if priority > queue.least:
        bucket = min(len(queue.first) - 1, int(math.log(priority / queue.least) / queue.step))
    last = queue.last[bucket]
    queue.place[item], queue.before[item], queue.after[item] = bucket, last, _NONE
    if last == _NONE:
        queue.first[bucket] = item
    else:
        queue.after[last] = item
    queue.last[bucket] = item
    queue.top[0] = max(queue.top[0], bucket)


@njit(cache=True)
def discard(queue: CalendarQueue, item: int) -> None:
    bucket = queue.place[item]
    if bucket == _NONE:
        return
    before, after = queue.before[item], queue.after[item]
    if before == _NONE:
        queue.first[bucket] = after
    else:
        queue.after[before] = after
    if after == _NONE:
        queue.last[bucket] = before
    else:
        queue.before[after] = before
    queue.place[item] = _NONE


@njit(cache=True)
def pop(queue: CalendarQueue) -> int:
    """Remove and return the oldest item of the highest non-empty bucket; -1 if the queue is empty."""
    while queue.top[0] >= 0 and queue.first[queue.top[0]] == _NONE:
        queue.top[0] -= 1
    if queue.top[0] < 0:
        return _NONE
    item: int = queue.first[queue.top[0]]
    discard(queue, item)
    return item
