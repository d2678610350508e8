"""Rows in the order of their partitions, and the stretches of them that windows cover."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int32]

# Far beyond any timestamp, and far enough from the ends of 64 bits to be added to one.
FOREVER = 2**62


@kernel
def by_partition(partitions: Numbers, count: int) -> tuple[Places, Numbers, Places]:
    """Rows sorted by partition, in order of arrival within each: a counting sort.

    Gives the place each sorted row comes from, its partition, and where its partition begins.
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
    """The first row of each row's partition at or after its `lower`; the next row where there is none."""
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
    """One past the last row of each row's partition at or before its `upper`, which is no earlier than it."""
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
    """How many rows of its partition up to each row count, those of earlier runs (`before`) included."""
    out = np.empty(len(partitions), np.int64)
    total = 0
    for i in range(len(partitions)):
        if i == 0 or partitions[i] != partitions[i - 1]:
            total = before[partitions[i]]
        total += counted[i]
        out[i] = total
    return out


def last_of_each(partitions: Numbers) -> Mask:
    """The rows that are the last of their partition."""
    out = np.ones(len(partitions), np.bool_)
    out[:-1] = partitions[1:] != partitions[:-1]
    return out
