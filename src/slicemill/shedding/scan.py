"""CALS by its definition: the cost of every tuple at every decision (L15-L17). Slow, and easy to trust."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from slicemill.shedding.chains import ChainMemory, Tuple
from slicemill.shedding.costs import cost
from slicemill.shedding.methods import Method


class ScanMemory(ChainMemory):
    """Drops a tuple of the least cost; of several one at the end of a run where splits
    count, then by the method's ties."""

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
        """The length of the run that a tuple was in; None: that of its kept neighbours counts."""
        return None


class OriginalRunMemory(ScanMemory):
    """The same, by shares of runs as they were before anything was dropped: the reading `exact` of L15.

    Of each run that something is kept of, and of the newest of each partition, it knows the beginning in the
    window, the end, and how many tuples are kept.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity, method)
        self._runs: dict[int, tuple[int, int, int]] = {}
        self._newest: dict[Hashable, int] = {}

    def expire(self, partition: Hashable, begin: int | None = None, number: int | None = None) -> None:
        before = self.kept(partition)
        super().expire(partition, begin, number)
        for tuple_ in before:
            if tuple_.chain is None and tuple_.run in self._runs:  # what is left of its run begins behind it
                _, end, count = self._runs[tuple_.run]
                self._runs[tuple_.run] = tuple_.end, end, count
        for tuple_ in self.kept(partition)[:1]:
            if begin is not None:  # those that were dropped have passed as well
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
