"""The order-preserving union behind a chain: punctuation instead of comparisons (S13).

All results of one probing tuple carry its timestamp, and probes go through the chain in order. So results
wait in one bucket per probe. When a probe leaves the last slice that a query needs, its bucket is complete
and comes out as it is: first what the first slice found, then the second, and so on.
"""

from __future__ import annotations

from collections import OrderedDict

from slicemill.rows import Timed


class OrderedUnion:
    """The results of one query, released in the order of the probes that made them."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[int, list[Timed]] = OrderedDict()

    @property
    def held(self) -> int:
        """How many results wait."""
        return sum(len(bucket) for bucket in self._buckets.values())

    def open(self, probe: int) -> None:
        """A probe enters the chain; probes are numbered in their order."""
        self._buckets[probe] = []

    def add(self, probe: int, result: Timed) -> None:
        self._buckets[probe].append(result)

    def close(self, probe: int) -> list[Timed]:
        """This probe is through, and so is every earlier one: a selection may have removed it on the way."""
        released: list[Timed] = []
        while self._buckets and next(iter(self._buckets)) <= probe:
            released += self._buckets.popitem(last=False)[1]
        return released
