"""CALS by definition: computes all costs at every decision (L15-L17).

The linear search is slow and serves as the reference.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from slicemill.shedding.chains import ChainMemory, Tuple
from slicemill.shedding.costs import cost
from slicemill.shedding.methods import Method


class ScanMemory(ChainMemory):
    """Memory that drops a tuple with minimal cost.

    If splits count, ties are resolved in favour of ends of runs, then by the method's tie rule.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        self.method = method

    def _victim(self) -> Tuple:
        best: tuple[tuple[float, bool, int], Tuple] | None = None
        for chain in self.chains.values():
            kept = list(chain)
            for place, tuple_ in enumerate(kept):
                found, splits = cost(kept, place, chain.follower, self.method, self._whole(tuple_))
                key = (found, splits and self.method.split > 0, self.method.tie(tuple_.serial))
                if best is None or key < best[0]:
                    best = key, tuple_
        assert best is not None, "the newest tuple is a candidate"
        return best[1]

    def _whole(self, tuple_: Tuple) -> int | None:  # noqa: ARG002
        """Return the original length of a tuple's run.

        None selects the length of the kept neighbours.
        """
        return None


class OriginalRunMemory(ScanMemory):
    """`ScanMemory` with costs relative to the original runs (`exact` in L15).

    For each run with kept tuples, and for the newest run of each partition, the begin in the window, the
    end and the number of kept tuples are stored.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity, method)
        self._runs: dict[int, tuple[int, int, int]] = {}
        self._newest: dict[Hashable, int] = {}

    def expire(self, partition: Hashable, begin: int | None = None, number: int | None = None) -> None:
        before = self.kept(partition)
        super().expire(partition, begin, number)
        for tuple_ in before:
            if tuple_.chain is None and tuple_.run in self._runs:  # its run now begins after it
                _, end, count = self._runs[tuple_.run]
                self._runs[tuple_.run] = tuple_.end, end, count
        for tuple_ in self.kept(partition)[:1]:
            if begin is not None:  # dropped tuples that began earlier have left the window as well
                first, end, count = self._runs[tuple_.run]
                self._runs[tuple_.run] = max(first, begin), end, count

    def forget(self, partition: Hashable) -> None:
        super().forget(partition)
        self._runs.pop(self._newest.pop(partition, -1), None)

    def _added(self, tuple_: Tuple) -> None:
        assert tuple_.chain is not None
        before = self._newest.get(tuple_.chain.partition, tuple_.run)
        if before != tuple_.run and self._runs.get(before, (0, 0, 1))[2] == 0:
            del self._runs[before]
        self._newest[tuple_.chain.partition] = tuple_.run
        begin, _, count = self._runs.get(tuple_.run, (tuple_.begin, 0, 0))
        self._runs[tuple_.run] = begin, tuple_.end, count + 1

    def _removing(self, tuple_: Tuple) -> None:
        assert tuple_.chain is not None
        begin, end, count = self._runs.pop(tuple_.run)
        if count > 1 or self._newest[tuple_.chain.partition] == tuple_.run:
            self._runs[tuple_.run] = begin, end, count - 1

    def _whole(self, tuple_: Tuple) -> int:
        begin, end, _ = self._runs[tuple_.run]
        return end - begin

    def state(self) -> dict[str, Any]:
        return {**super().state(), "runs": self._runs, "newest": self._newest}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._runs, self._newest = dict(state["runs"]), dict(state["newest"])
