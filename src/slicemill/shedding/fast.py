"""CALS with a heap of runs: O(log n) per decision (L22).

A *fragment* is a run of kept neighbours. A split costs at least as much as all of a run's time, so the
cheapest tuple of all is the first or last of its fragment. The heap contains each fragment with the
cheaper one of these two. If only time counts (CALS-I), an inner tuple may be the cheapest. In this case a
fragment has its tuples in a heap by length, and a split moves the smaller part.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeAlias

from slicemill.shedding.chains import ChainMemory, Tuple, TupleChain
from slicemill.shedding.methods import Method

_SLACK = 64


class KeptRun:
    """Fragment: a run of kept neighbours.

    Its valid heap entry has the number `entry`; older entries are void.
    """

    __slots__ = ("by_length", "entry", "first", "last")

    def __init__(self, tuple_: Tuple) -> None:
        self.first = self.last = tuple_
        self.entry = -1
        self.by_length: list[tuple[int, int, Tuple]] = []

    @property
    def length(self) -> int:
        return self.last.end - self.first.begin


_Entry: TypeAlias = tuple[float, int, int, KeptRun, Tuple]


class FastMemory(ChainMemory):
    """Memory that makes the same choices as `ScanMemory`."""

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        assert method.split >= method.lost or method.split == 0, "else an inner tuple may be the cheapest"
        self.method = method
        self._lost, self._threshold = method.lost, method.threshold
        self._any = method.split == 0 and method.threshold is None
        self._heap: list[_Entry] = []
        self._entries = count()
        self._fragments = 0

    # -- the heap ---------------------------------------------------------------------------------------

    def _victim(self) -> Tuple:
        while True:
            _, _, entry, fragment, tuple_ = self._heap[0]
            if fragment.entry == entry:
                return tuple_
            heappop(self._heap)

    def _offer(self, fragment: KeptRun) -> None:
        """Push a new heap entry for a changed fragment."""
        fragment.entry = next(self._entries)
        heappush(self._heap, self._entry(fragment))
        if len(self._heap) > 4 * self._fragments + _SLACK:
            self._heap = [found for found in self._heap if found[3].entry == found[2]]
            heapify(self._heap)

    def _withdraw(self, fragment: KeptRun) -> None:
        fragment.entry = -1
        self._fragments -= 1

    def _entry(self, fragment: KeptRun) -> _Entry:
        if self._any:
            while fragment.by_length[0][2].fragment is not fragment:
                heappop(fragment.by_length)
            length, tie, tuple_ = fragment.by_length[0]
            return self._lost * (length / fragment.length), tie, fragment.entry, fragment, tuple_
        first, last = fragment.first, fragment.last
        grows = last.after is None and self._grows(last)
        length = last.end - first.begin
        cost = self._cost(first.end - first.begin, length, grows)
        if first is last or grows:
            return cost, first.tie, fragment.entry, fragment, first
        other = self._cost(last.end - last.begin, length, grows)
        if (other, last.tie) < (cost, first.tie):
            return other, last.tie, fragment.entry, fragment, last
        return cost, first.tie, fragment.entry, fragment, first

    def _cost(self, dropped: int, length: int, grows: bool) -> float:
        """Return the cost of dropping an end of a fragment.

        `dropped` is the length of this tuple, and `length` that of the fragment.
        """
        threshold = self._threshold
        if threshold is None or grows:
            return self._lost * (dropped / length)
        if length < threshold:
            return 0.0
        rest = length - dropped
        return self._lost * ((length - (rest if rest >= threshold else 0)) / length)

    def _grows(self, last: Tuple) -> bool:
        """Return True if the newest tuple of the partition continues `last`.

        A tuple that is being removed is still linked, so its predecessor does not count as growing.
        """
        if not self.method.lookahead:
            return False
        assert last.chain is not None
        follower = last.chain.follower
        return follower is not None and follower.begin == last.end and follower.values == last.values

    # -- fragments --------------------------------------------------------------------------------------

    def _added(self, tuple_: Tuple) -> None:
        tuple_.tie = self.method.tie(tuple_.serial)
        before = tuple_.before
        if before is not None and tuple_.goes_on(before.values, before.end):
            fragment: KeptRun = before.fragment
            fragment.last = tuple_
        else:
            if before is not None:
                self._offer(before.fragment)  # this fragment cannot grow any more
            fragment = KeptRun(tuple_)
            self._fragments += 1
        self._take(fragment, tuple_)
        self._offer(fragment)

    def _take(self, fragment: KeptRun, tuple_: Tuple) -> None:
        tuple_.fragment = fragment
        if self._any:
            heappush(fragment.by_length, (tuple_.length, tuple_.tie, tuple_))

    def _followed(self, chain: TupleChain) -> None:
        if chain.last is not None:
            self._offer(chain.last.fragment)

    def _removing(self, tuple_: Tuple) -> None:
        fragment: KeptRun = tuple_.fragment
        tuple_.fragment = None
        if fragment.first is fragment.last:
            self._withdraw(fragment)
        elif fragment.first is tuple_:
            assert tuple_.after is not None
            fragment.first = tuple_.after
            self._offer(fragment)
        elif fragment.last is tuple_:
            assert tuple_.before is not None
            fragment.last = tuple_.before
            self._offer(fragment)
        else:
            self._split(fragment, tuple_)

    def _split(self, fragment: KeptRun, tuple_: Tuple) -> None:
        """Split a fragment at a tuple, and move its smaller part.

        So each tuple is moved at most a logarithmic number of times.
        """
        left, right = tuple_.before, tuple_.after
        assert left is not None and right is not None
        first, last = fragment.first, fragment.last
        down, up = left, right
        while down is not first and up is not last:
            assert down.before is not None and up.after is not None
            down, up = down.before, up.after
        if down is first:
            moved = self._moved(first, left)
            fragment.first = right
        else:
            moved = self._moved(right, last)
            fragment.last = left
        self._fragments += 1
        self._offer(fragment)
        self._offer(moved)

    def _moved(self, first: Tuple, last: Tuple) -> KeptRun:
        moved = KeptRun(first)
        moved.last = last
        current: Tuple | None = first
        while current is not None:
            self._take(moved, current)
            current = current.after if current is not last else None
        return moved
