"""Approximate number of ones in n bits, in O(log² n) memory.

The error is at most 50 % (M41; Datar et al., 2002). Ones are counted in buckets of 1, 2, 4, … ones, with
at most two buckets per size. A third bucket merges the two oldest buckets of its size into one of twice
the size. A bucket has the arrival number of its newest one, and is dropped when this one has left the
window. The window may contain only a part of the oldest bucket, so half of that bucket is counted.

    1 1 0 1 1 1 0 1    as buckets, newest first: (1) (1) (2) (2)
"""

from __future__ import annotations


class Ones:
    """`CREATE AGGREGATE ones(bit boolean, n int) : int LANGUAGE PYTHON
    AS 'slicemill_lab.mill.ones:Ones'`.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        # By size, newest bucket first: the arrival number of the newest one.
        self._buckets: list[list[int]] = []

    def initialize(self, bit: bool | None, n: int) -> int:
        """Add a bit (NULL is not a one), and return the estimate.

        The estimate covers the last `n` bits, including this bit.
        """
        self._arrivals += 1
        self._forget(self._arrivals - n)
        if bit:
            self._add(self._arrivals)
        return self._estimate()

    iterate = initialize

    def _forget(self, latest: int) -> None:
        while self._buckets and self._buckets[-1][-1] <= latest:
            self._buckets[-1].pop()
            if not self._buckets[-1]:
                self._buckets.pop()

    def _add(self, arrival: int) -> None:
        for buckets in self._buckets:
            buckets.insert(0, arrival)
            if len(buckets) <= 2:
                return
            buckets.pop()
            arrival = buckets.pop()
        self._buckets.append([arrival])

    def _estimate(self) -> int:
        total = sum(len(buckets) << level for level, buckets in enumerate(self._buckets))
        oldest = 1 << len(self._buckets) >> 1
        return total - oldest // 2
