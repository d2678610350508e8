"""Memory of runs: tuples are coalesced on arrival, and capacity counts runs (L24).

Long runs need far fewer slots than tuples do. Only whole runs are dropped, the shortest first. A run that
may still grow is dropped only if there is no other.

A run does not store where its tuples began, but a run that the window has partly passed must begin with
its first tuple inside. Windows begin only at multiples of the slide. So for each partition the first tuple
after each of these points is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from slicemill.shedding.chains import ChainMemory, NewestTuple, Tuple, TupleChain
from slicemill.shedding.methods import Method

_SLACK = 64

_Entry: TypeAlias = tuple[bool, int, int, int, Tuple]


class RunMemory(ChainMemory):
    """Memory of runs.

    A `Tuple` is a run here, and its `fragment` is the number of its heap entry.
    """

    def __init__(self, capacity: int, method: Method, extent: int = 0, slide: int = 1) -> None:
        """Windows of length `extent` end at multiples of `slide`."""
        super().__init__(capacity)
        self.method = method
        self._extent, self._slide = extent, slide
        self._starts: dict[Hashable, deque[int]] = {}
        self._heap: list[_Entry] = []
        self._entries = count()

    def add(self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None) -> None:
        if closed is not None:
            starts = self._starts.setdefault(partition, deque())
            if not starts or self._place(starts[-1]) < self._place(closed.begin):
                starts.append(closed.begin)
        last = self.chains[partition].last if partition in self.chains else None
        if closed is None or last is None or not closed.goes_on(last.values, last.end):
            super().add(partition, closed, follower)
            return
        last.end, last.number, last.count = closed.end, closed.number, last.count + closed.count
        self.chains[partition].follower = follower
        self._offer(last)

    def expire(self, partition: Hashable, begin: int | None = None, number: int | None = None) -> None:
        assert number is None or begin is None, "windows are of time, or all is forgotten"
        if number is not None:
            super().expire(partition, number=number)
            return
        if begin is None:
            return
        chain, starts = self.chains.get(partition), self._starts.get(partition, deque())
        while starts and starts[0] < begin:
            starts.popleft()
        while chain is not None and (oldest := chain.first) is not None and oldest.begin < begin:
            # Runs do not overlap, so a tuple that begins before the end of this run belongs to it.
            if starts and starts[0] < oldest.end:
                oldest.begin = starts[0]
                self._offer(oldest)
                break
            self._remove(oldest)

    def forget(self, partition: Hashable) -> None:
        super().forget(partition)
        self._starts.pop(partition, None)

    @property
    def beside(self) -> int:
        """Return the number of tuple times stored beside the runs."""
        return sum(map(len, self._starts.values()))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "starts": self._starts}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._starts = dict(state["starts"])

    def _place(self, begin: int) -> int:
        """Return the index of the last possible window start up to `begin`."""
        return (begin + self._extent) // self._slide

    def _victim(self) -> Tuple:
        while self._heap[0][4].fragment != self._heap[0][3]:
            heappop(self._heap)
        return self._heap[0][4]

    def _offer(self, run: Tuple) -> None:
        assert run.chain is not None
        follower = run.chain.follower
        grows = run.after is None and follower is not None and follower.goes_on(run.values, run.end)
        run.fragment = next(self._entries)
        heappush(self._heap, (grows, run.length, self.method.tie(run.serial), run.fragment, run))
        if len(self._heap) > 4 * self.held + _SLACK:
            self._heap = [found for found in self._heap if found[4].fragment == found[3]]
            heapify(self._heap)

    def _added(self, tuple_: Tuple) -> None:
        if tuple_.before is not None:
            self._offer(tuple_.before)  # this run cannot grow any more
        self._offer(tuple_)

    def _removing(self, tuple_: Tuple) -> None:
        tuple_.fragment = None

    def _followed(self, chain: TupleChain) -> None:
        if chain.last is not None:
            self._offer(chain.last)
