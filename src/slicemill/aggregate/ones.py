"""How many of the last n were ones? In O(log² n) bits, within a half of the truth (M41; Datar et al., 2002).

Ones are counted in buckets of 1, 2, 4, … ones, at most two of each size; a third makes the two oldest of them
one of twice the size. A bucket is known by the arrival of its latest one and goes when that has left the
window. What is not known is how much of the oldest bucket is still inside: half of it is taken to be.

    1 1 0 1 1 1 0 1    as buckets, newest first: (1) (1) (2) (2)
"""

from __future__ import annotations


class Ones:
    """`CREATE AGGREGATE ones(bit boolean, n int) : int LANGUAGE PYTHON
    AS 'slicemill.aggregate.ones:Ones'`.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        # By size, each newest first: arrival of the latest one.
        self._buckets: list[list[int]] = []

    def initialize(self, bit: bool | None, n: int) -> int:
        """One more; NULL is no one. Gives the estimate for the last `n` bits, this one included."""
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
