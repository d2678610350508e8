"""Spans: index ranges of entries, one for each window.

An entry has the partial aggregates of one pane and key. A view has the entries that one query reads, ordered
by key and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.time import BEGINNING

_ENDS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Spans:
    """Windows as index ranges [lo, hi) of entries (partial aggregates of panes) of one key.

    `rank` is the position of the key among all keys, and `end` is the end time of the window.
    """

    end: Int64s
    rank: Int32s
    lo: Int32s
    hi: Int32s

    def __len__(self) -> int:
        return len(self.end)

    def take(self, indices: NDArray[np.int64]) -> Spans:
        return Spans(self.end[indices], self.rank[indices], self.lo[indices], self.hi[indices])


def spans_of(
    begin: Int64s, start: Int64s, length: int, slide: int, after: int, until: int, grows: bool = False
) -> Spans:
    """Return the non-empty windows that end later than `after`, and at `until` or earlier.

    The windows are ordered by end, then by key. If `grows` is set, windows begin at multiples of `length`.

    >>> found = spans_of(np.array([0, 2, 3]), np.array([0, 10, 20]), 20, 10, 0, 30)
    >>> found.end.tolist(), found.rank.tolist(), found.lo.tolist(), found.hi.tolist()
    ([10, 20, 30, 30], [0, 0, 0, 1], [0, 0, 1, 2], [1, 2, 2, 3])
    """
    if not len(start):
        return Spans(np.empty(0, np.int64), *(np.empty(0, np.int32) for _ in range(3)))
    oldest, newest = int(start.min()), int(start.max())
    first = max(after // slide, oldest // slide) * slide + slide
    last = min(until, newest + length) // slide * slide
    parts = []
    block = first
    while block <= last:
        # Skip window ends without entries, because the next entry may be years later.
        awaited = int(start[start >= block - length].min())
        block = max(block, (awaited // slide + 1) * slide)
        count = max(0, min(_ENDS_AT_ONCE, (last - block) // slide + 1))
        counts = _count(begin, start, length, slide, grows, block, count)
        indices = np.cumsum(counts) - counts
        filled = _fill(begin, start, length, slide, grows, block, indices, int(counts.sum()))
        ends = np.repeat(block + slide * np.arange(count), counts)
        parts.append(Spans(ends, *filled))
        block += _ENDS_AT_ONCE * slide
    if len(parts) == 1:
        return parts[0]
    return Spans(
        np.concatenate([np.empty(0, np.int64), *(part.end for part in parts)]),
        *(
            np.concatenate([np.empty(0, np.int32), *(getattr(part, name) for part in parts)])
            for name in ("rank", "lo", "hi")
        ),
    )


@kernel
def _count(
    begin: Int64s, start: Int64s, length: int, slide: int, grows: bool, first: int, count: int
) -> Int64s:
    counts = np.zeros(count, np.int64)
    for k in range(len(begin) - 1):
        lo, hi, stop = begin[k], begin[k], begin[k + 1]
        j = 0
        while j < count:
            end = first + j * slide
            while hi < stop and start[hi] < end:
                hi += 1
            since = (end - 1) // length * length if grows else end - length
            while lo < hi and start[lo] < since:
                lo += 1
            if lo < hi:
                counts[j] += 1
                j += 1
            elif hi < stop:
                # Skip to the end of the first window that contains the next entry.
                j = max(j + 1, (start[hi] - first) // slide + 1)
            else:
                break
    return counts


@kernel
def _fill(
    begin: Int64s,
    start: Int64s,
    length: int,
    slide: int,
    grows: bool,
    first: int,
    index: Int64s,
    results: int,
) -> tuple[Int32s, Int32s, Int32s]:
    ranks, los, his = np.empty(results, np.int32), np.empty(results, np.int32), np.empty(results, np.int32)
    for k in range(len(begin) - 1):
        lo, hi, stop = begin[k], begin[k], begin[k + 1]
        j = 0
        while j < len(index):
            end = first + j * slide
            while hi < stop and start[hi] < end:
                hi += 1
            since = (end - 1) // length * length if grows else end - length
            while lo < hi and start[lo] < since:
                lo += 1
            if lo < hi:
                p = index[j]
                ranks[p], los[p], his[p] = k, lo, hi
                index[j] = p + 1
                j += 1
            elif hi < stop:
                j = max(j + 1, (start[hi] - first) // slide + 1)
            else:
                break
    return ranks, los, his


def spans_at(begin: Int64s, start: Int64s, length: int, rank: Int64s, end: Int64s) -> Spans:
    """Return the window of each key that ends at the given time. `rank` has the positions of the keys.

    Rank -1 means a key without entries, whose window is empty.
    """
    lo, hi = _search(begin, start, length, rank, end)
    return Spans(end, np.maximum(rank, 0).astype(np.int32), lo, hi)


@kernel
def _search(begin: Int64s, start: Int64s, length: int, rank: Int64s, end: Int64s) -> tuple[Int32s, Int32s]:
    los, his = np.zeros(len(rank), np.int32), np.zeros(len(rank), np.int32)
    for i in range(len(rank)):
        if rank[i] >= 0:
            own = start[begin[rank[i]] : begin[rank[i] + 1]]
            los[i] = begin[rank[i]] + np.searchsorted(own, end[i] - length)
            his[i] = begin[rank[i]] + np.searchsorted(own, end[i])
    return los, his


# Assignment of timestamps to panes, given the step and offset of pane borders (`window.spec.edge_grids`).


def cut(ts: Int64s, edges: tuple[tuple[int, int], ...], not_before: int) -> tuple[Int64s, Int64s]:
    """Assign sorted timestamps to panes: return the pane starts, and the first position of each pane.

    `not_before` is the start of the newest known pane. New panes never start earlier, even if a changed plan
    has longer panes.

    >>> starts, borders = cut(np.array([1, 2, 9, 10, 31]), ((10, 0), (10, 3)), -100)
    >>> starts.tolist(), borders.tolist()
    ([0, 3, 10, 30], [0, 2, 3, 4, 5])
    """
    table = np.array(edges, np.int64)
    starts, borders = _cut(ts, table[:, 0].copy(), table[:, 1].copy())
    return np.maximum(starts, not_before), borders


@kernel
def _cut(ts: Int64s, steps: Int64s, offsets: Int64s) -> tuple[Int64s, Int64s]:
    starts, borders = np.empty(len(ts), np.int64), np.empty(len(ts) + 1, np.int64)
    count, edge = 0, BEGINNING
    for i in range(len(ts)):
        if count == 0 or ts[i] >= edge:
            begin, edge = BEGINNING, -BEGINNING
            for g in range(len(steps)):
                below = (ts[i] - offsets[g]) // steps[g] * steps[g] + offsets[g]
                begin, edge = max(begin, below), min(edge, below + steps[g])
            starts[count], borders[count] = begin, i
            count += 1
    borders[count] = len(ts)
    return starts[:count], borders[: count + 1]


# Kernels for aggregation by group. The parameter `group` has the group number of each row or entry.


@kernel
def first_of_group(group: Int64s, groups: int) -> Int64s:
    first = np.empty(groups, np.int64)
    for i in range(len(group) - 1, -1, -1):
        first[group[i]] = i
    return first


@kernel
def sum_by_group(values: NDArray[Any], group: Int64s, groups: int) -> Int64s:
    total = np.zeros(groups, np.int64)
    for i in range(len(group)):
        total[group[i]] += values[i]
    return total


@kernel
def least_of_group(values: Int64s, group: Int64s, groups: int) -> Int64s:
    """Return for each group the index of its least value; of several equal values, the first."""
    index = np.full(groups, -1, np.int64)
    for i in range(len(group)):
        g = group[i]
        if index[g] < 0 or values[i] < values[index[g]]:
            index[g] = i
    return index
