"""Order-preserving union after a chain, by punctuation instead of comparisons (S13).

All results of a probing tuple have its timestamp, and probes pass the chain in order. So results are
collected in one bucket per probe. When a probe leaves the last slice that a query needs, its bucket is
complete and is emitted in slice order.
"""

from __future__ import annotations

from collections import OrderedDict

from slicemill.types import Timed


class OrderedUnion:
    """Releases the results of one query in probe order."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[int, list[Timed]] = OrderedDict()

    @property
    def held(self) -> int:
        """The number of waiting results."""
        return sum(len(bucket) for bucket in self._buckets.values())

    def open(self, probe: int) -> None:
        """Open a probe. Probes are numbered in order."""
        self._buckets[probe] = []

    def add(self, probe: int, result: Timed) -> None:
        self._buckets[probe].append(result)

    def close(self, probe: int) -> list[Timed]:
        """Release the results of this and all earlier probes.

        A filter may have removed an earlier probe from the chain.
        """
        released: list[Timed] = []
        while self._buckets and next(iter(self._buckets)) <= probe:
            released += self._buckets.popitem(last=False)[1]
        return released
