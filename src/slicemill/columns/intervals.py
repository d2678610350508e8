"""Row ranges: rows sorted by partition, and the ranges that windows cover."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int32]

# Far beyond any timestamp, but small enough to be added to one without overflow.
FOREVER = 2**62


@kernel
def by_partition(partitions: Numbers, count: int) -> tuple[Places, Numbers, Places]:
    """Sort rows by partition, in order of arrival within each, by counting sort.

    Return the position that each sorted row has in the input, its partition, and the start of its
    partition.
    """
    following = np.zeros(count + 1, np.int64)
    for partition in partitions:
        following[partition + 1] += 1
    by_partitions, heads = np.empty(len(partitions), np.int32), np.empty(len(partitions), np.int64)
    for partition in range(count):
        head = following[partition]
        following[partition + 1] += head
        by_partitions[head : following[partition + 1]] = partition
        heads[head : following[partition + 1]] = head
    order = np.empty(len(partitions), np.int64)
    for place in range(len(partitions)):
        partition = partitions[place]
        order[following[partition]] = place
        following[partition] += 1
    return order, by_partitions, heads


@kernel
def starts_from(head: Places, ts: Places, lower: Places) -> Places:
    """Return the first row of each row's partition with ts >= `lower`.

    If there is none up to the row itself, this is the row's position plus 1.
    """
    out = np.empty(len(ts), np.int64)
    start = 0
    for i in range(len(ts)):
        start = max(start, head[i])
        while start <= i and ts[start] < lower[i]:
            start += 1
        out[i] = start
    return out


@kernel
def ends_until(head: Places, ts: Places, upper: Places) -> Places:
    """Return the end of each row's partition range with ts <= `upper`.

    `upper` is not before the row's own time. The end is exclusive.
    """
    out = np.empty(len(ts), np.int64)
    end = 0
    for i in range(len(ts)):
        end = max(end, i + 1)
        while end < len(ts) and head[end] == head[i] and ts[end] <= upper[i]:
            end += 1
        out[i] = end
    return out


@kernel
def running(partitions: Numbers, counted: Any, before: Places) -> Places:
    """Return a running sum of `counted` per partition, continued from `before`."""
    out = np.empty(len(partitions), np.int64)
    total = 0
    for i in range(len(partitions)):
        if i == 0 or partitions[i] != partitions[i - 1]:
            total = before[partitions[i]]
        total += counted[i]
        out[i] = total
    return out


def last_of_each(partitions: Numbers) -> Mask:
    """Return a mask of the rows that are the last of their partition."""
    out = np.ones(len(partitions), np.bool_)
    out[:-1] = partitions[1:] != partitions[:-1]
    return out
