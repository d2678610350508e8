"""Tuple stores of temporal queries with a memory budget; a full store drops tuples (L14, L16).

A temporal query with a memory budget keeps its tuples in one of these stores. A *run* (of equal values) is a
sequence of tuples with equal values and adjacent periods, which coalescing merges into one result row. A
*chain* is the list of stored tuples of one partition. `ChainMemory` is the base class of all stores. A tuple
is added when its end is known, which is when the next tuple of its partition arrives. This next tuple is the
*follower* of the chain. It is stored separately and is never dropped. CALS is the shedding method that drops
the tuple with the least cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from slicemill.catalog.queries import Budget, Slot
from slicemill.codec.registry import stored_as
from slicemill.shedding.methods import Method, method_of, splitmix64

Values = Hashable


@stored_as("shed.follower", version=1)
class NewestTuple(NamedTuple):
    """Newest tuple of a partition. The end of its period is unknown until the next tuple arrives."""

    values: Values
    begin: int

    def extends(self, values: Values, end: int) -> bool:
        """Return True if the tuple continues a run of tuples with the values `values` that ends at `end`."""
        return self.begin == end and self.values == values


class Tuple:
    """Stored tuple with its interval, or several tuples that are merged into one.

    `number` is the arrival number in the partition, and `serial` the arrival number in all partitions. `run`
    is the number of the run of equal values to which the tuple belonged before load shedding. `tie` is the
    rank of the tuple among tuples of equal cost.
    """

    __slots__ = (
        "after",
        "before",
        "begin",
        "chain",
        "count",
        "end",
        "fragment",
        "number",
        "run",
        "serial",
        "tie",
        "values",
    )

    def __init__(
        self, values: Values, begin: int, end: int, number: int, serial: int, run: int, count: int = 1
    ) -> None:
        self.values = values
        self.begin = begin
        self.end = end
        self.number = number
        self.serial = serial
        self.run = run
        self.count = count
        self.before: Tuple | None = None
        self.after: Tuple | None = None
        self.chain: TupleChain | None = None
        self.fragment: Any = None
        self.tie = 0

    def extends(self, values: Values, end: int) -> bool:
        return self.begin == end and self.values == values

    @property
    def length(self) -> int:
        return self.end - self.begin

    def plain(self) -> tuple[Any, ...]:
        return self.values, self.begin, self.end, self.number, self.serial, self.run, self.count


class TupleChain:
    """Linked list of the stored tuples of one partition, oldest first."""

    __slots__ = ("first", "follower", "last", "partition")

    def __init__(self, partition: Hashable) -> None:
        self.partition = partition
        self.first: Tuple | None = None
        self.last: Tuple | None = None
        self.follower: NewestTuple | None = None

    def __iter__(self) -> Iterator[Tuple]:
        current = self.first
        while current is not None:
            yield current
            current = current.after


class DroppedTuple(NamedTuple):
    """Tuple that load shedding dropped, with its partition."""

    partition: Hashable
    tuple: Tuple


class ChainMemory(ABC):
    """Store of up to `capacity` tuples, and of the newest tuple of each partition."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0
        self.chains: dict[Hashable, TupleChain] = {}

    def arrive(
        self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None
    ) -> DroppedTuple | None:
        """Process a new tuple, which ends the period of its predecessor; return the dropped tuple or None.

        `closed` is the predecessor, and `follower` is the new tuple. Each
        is None if the query does not select it, or if its period is empty.
        """
        self.add(partition, closed, follower)
        return self.shed()

    def add(self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None) -> None:
        """Process a new tuple like `arrive`, but do not drop a tuple if the store is too full."""
        chain = self.chains.get(partition)
        if chain is None:
            chain = self.chains[partition] = TupleChain(partition)
        chain.follower = follower
        if closed is None:
            self._after_follower_change(chain)
        else:
            self._append(chain, closed)

    def shed(self) -> DroppedTuple | None:
        """Drop one tuple if more than `capacity` tuples are stored."""
        if self.held <= self.capacity:
            return None
        victim = self._victim()
        assert victim.chain is not None
        partition = victim.chain.partition
        self._remove(victim)
        return DroppedTuple(partition, victim)

    def expire(self, partition: Hashable, begin: int | None = None, number: int | None = None) -> None:
        """Remove tuples of a partition from before a time `begin` or an arrival number `number`.

        They have left the window of the query, and do not count as dropped.
        """
        chain = self.chains.get(partition)
        while chain is not None and (oldest := chain.first) is not None:
            if (begin is None or oldest.begin >= begin) and (number is None or oldest.number >= number):
                break
            self._remove(oldest)

    def forget(self, partition: Hashable) -> None:
        """Remove a partition that has no tuples in the window any more."""
        self.expire(partition, number=2**63)
        self.chains.pop(partition, None)

    def kept(self, partition: Hashable) -> list[Tuple]:
        return list(self.chains.get(partition, ()))

    @property
    def extra_timestamps(self) -> int:
        """Return the number of timestamps that the store keeps in addition to its tuples."""
        return 0

    @abstractmethod
    def _victim(self) -> Tuple:
        """Return the tuple that a full store drops next."""

    def _added(self, tuple_: Tuple) -> None:  # noqa: B027 - not all need it
        """Hook that is called after a tuple was appended to the chain of its partition."""

    def _before_remove(self, tuple_: Tuple) -> None:  # noqa: B027 - not all need it
        """Hook that is called before a tuple is removed from the chain of its partition."""

    def _after_follower_change(self, chain: TupleChain) -> None:  # noqa: B027 - not all need it
        """Hook that is called after the newest tuple of a partition (the follower of its chain) changes."""

    def _append(self, chain: TupleChain, tuple_: Tuple) -> None:
        tuple_.chain, tuple_.before, tuple_.after = chain, chain.last, None
        if chain.last is None:
            chain.first = tuple_
        else:
            chain.last.after = tuple_
        chain.last = tuple_
        self.held += 1
        self._added(tuple_)

    def _remove(self, tuple_: Tuple) -> None:
        self._before_remove(tuple_)
        chain, before, after = tuple_.chain, tuple_.before, tuple_.after
        assert chain is not None
        if before is None:
            chain.first = after
        else:
            before.after = after
        if after is None:
            chain.last = before
        else:
            after.before = before
        tuple_.before = tuple_.after = tuple_.chain = None
        self.held -= 1

    def state(self) -> dict[str, Any]:
        """Return the tuples of each partition as lists, for a checkpoint."""
        chains = [
            (key, chain.follower, [tuple_.plain() for tuple_ in chain]) for key, chain in self.chains.items()
        ]
        return {"chains": chains}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill an empty store of the same class with the result of `state`."""
        for key, follower, tuples in state["chains"]:
            chain = self.chains[key] = TupleChain(key)
            chain.follower = follower
            for plain in tuples:
                self._append(chain, Tuple(*plain))


# Store of runs of equal values: tuples are merged on arrival, and the capacity is a number of runs (L24).
#
# A run of many tuples takes one slot. Only whole runs are dropped, the shortest first. The newest run of a
# partition may still grow, so it is dropped only if all other stored runs may grow too.
#
# A run does not store the begins of its tuples. But when a window starts inside a run, the run must begin
# with its first tuple in the window. Windows start only at multiples of the slide. So for each partition and
# each possible window start, the begin of the first later tuple is stored.


_SLACK = 64

_Entry: TypeAlias = tuple[bool, int, int, int, Tuple]


class RunMemory(ChainMemory):
    """Store of runs of equal values, which drops the shortest run when full.

    In this class a `Tuple` is a run of several tuples, and its `fragment` is the number of its heap entry.
    """

    def __init__(self, capacity: int, method: Method, extent: int = 0, slide: int = 1) -> None:
        """Create an empty store for windows of length `extent` that end at multiples of `slide`."""
        super().__init__(capacity)
        self.method = method
        self._extent, self._slide = extent, slide
        self._starts: dict[Hashable, deque[int]] = {}
        self._heap: list[_Entry] = []
        self._entries = count()

    def add(self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None) -> None:
        if closed is not None:
            starts = self._starts.setdefault(partition, deque())
            if not starts or self._index(starts[-1]) < self._index(closed.begin):
                starts.append(closed.begin)
        last = self.chains[partition].last if partition in self.chains else None
        if closed is None or last is None or not closed.extends(last.values, last.end):
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
            # Runs do not overlap, so a tuple that begins before the end of this run belongs to this run.
            if starts and starts[0] < oldest.end:
                oldest.begin = starts[0]
                self._offer(oldest)
                break
            self._remove(oldest)

    def forget(self, partition: Hashable) -> None:
        super().forget(partition)
        self._starts.pop(partition, None)

    @property
    def extra_timestamps(self) -> int:
        """Return the number of tuple begins that are stored in addition to the runs."""
        return sum(map(len, self._starts.values()))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "starts": self._starts}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._starts = dict(state["starts"])

    def _index(self, begin: int) -> int:
        """Return the index of the last possible window start up to `begin`."""
        return (begin + self._extent) // self._slide

    def _victim(self) -> Tuple:
        while self._heap[0][4].fragment != self._heap[0][3]:
            heappop(self._heap)
        return self._heap[0][4]

    def _offer(self, run: Tuple) -> None:
        assert run.chain is not None
        follower = run.chain.follower
        grows = run.after is None and follower is not None and follower.extends(run.values, run.end)
        run.fragment = next(self._entries)
        heappush(self._heap, (grows, run.length, self.method.tie(run.serial), run.fragment, run))
        if len(self._heap) > 4 * self.held + _SLACK:
            self._heap = [found for found in self._heap if found[4].fragment == found[3]]
            heapify(self._heap)

    def _added(self, tuple_: Tuple) -> None:
        if tuple_.before is not None:
            self._offer(tuple_.before)  # the previous run cannot grow any more, so its priority changes
        self._offer(tuple_)

    def _before_remove(self, tuple_: Tuple) -> None:
        tuple_.fragment = None

    def _after_follower_change(self, chain: TupleChain) -> None:
        if chain.last is not None:
            self._offer(chain.last)


# CALS (shedding of the tuple with the least cost) by linear search among all tuples (L15-L17).
#
# The linear search is slow, and serves as the reference for `FastMemory`.


class ScanMemory(ChainMemory):
    """Store that, when full, searches all its tuples for the tuple with the least cost and drops it.

    Among tuples of equal cost, the first or last tuple of a run is dropped before an inner tuple, if splits
    of runs have a cost. Then the tie rule of the method decides.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        self.method = method

    def _victim(self) -> Tuple:
        best: tuple[tuple[float, bool, int], Tuple] | None = None
        for chain in self.chains.values():
            kept = list(chain)
            for index, tuple_ in enumerate(kept):
                found, splits = cost(kept, index, chain.follower, self.method, self._whole(tuple_))
                key = (found, splits and self.method.split > 0, self.method.tie(tuple_.serial))
                if best is None or key < best[0]:
                    best = key, tuple_
        assert best is not None, "the newest tuple is a candidate"
        return best[1]

    def _whole(self, tuple_: Tuple) -> int | None:  # noqa: ARG002
        """Return the length of the run to which the cost of dropping a tuple is relative, or None.

        None stands for the length of the adjacent tuples with equal values that are still stored.
        """
        return None


class OriginalRunMemory(ScanMemory):
    """Store in which the cost of a tuple is relative to its run of equal values before load shedding.

    This is the method `exact` (L15). `_runs` has the begin in the window, the end and the number of stored
    tuples of each run. It contains the runs with stored tuples, and the newest run of each partition.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity, method)
        self._runs: dict[int, tuple[int, int, int]] = {}
        self._newest: dict[Hashable, int] = {}

    def expire(self, partition: Hashable, begin: int | None = None, number: int | None = None) -> None:
        before = self.kept(partition)
        super().expire(partition, begin, number)
        for tuple_ in before:
            # A run begins after its last tuple that has expired.
            if tuple_.chain is None and tuple_.run in self._runs:
                _, end, count = self._runs[tuple_.run]
                self._runs[tuple_.run] = tuple_.end, end, count
        for tuple_ in self.kept(partition)[:1]:
            # Dropped tuples of the run that began before `begin` have left the window as well.
            if begin is not None:
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

    def _before_remove(self, tuple_: Tuple) -> None:
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


# CALS (shedding of the tuple with the least cost) with a heap: O(log n) per decision (L22).
#
# A *fragment* is a sequence of adjacent stored tuples of one run of equal values. Dropping an inner tuple
# splits a fragment. If a split costs at least as much as the loss of a whole run, the first or the last tuple
# of a fragment has the least cost. The heap then has one entry for each fragment, with the cheaper of these
# two tuples. If only lost time has a cost (method `interval`), an inner tuple may have the least cost. In
# this case each fragment has a heap of its tuples by length, and a split moves the smaller part.


_HEAP_SLACK = 64


class RunFragment:
    """Sequence of adjacent stored tuples of one run of equal values.

    The valid heap entry of the fragment has the number `entry`. Its other heap entries are outdated.
    """

    __slots__ = ("by_length", "entry", "first", "last")

    def __init__(self, tuple_: Tuple) -> None:
        self.first = self.last = tuple_
        self.entry = -1
        self.by_length: list[tuple[int, int, Tuple]] = []

    @property
    def length(self) -> int:
        return self.last.end - self.first.begin


_HeapEntry: TypeAlias = tuple[float, int, int, RunFragment, Tuple]


class FastMemory(ChainMemory):
    """Store that makes the choices of `ScanMemory` in logarithmic time, with a heap."""

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        assert method.split >= method.lost or method.split == 0, "else an inner tuple may be the cheapest"
        self.method = method
        self._lost, self._threshold = method.lost, method.threshold
        self._any = method.split == 0 and method.threshold is None
        self._heap: list[_HeapEntry] = []
        self._entries = count()
        self._fragments = 0

    # -- heap of fragments by cost ----------------------------------------------------------------------

    def _victim(self) -> Tuple:
        while True:
            _, _, entry, fragment, tuple_ = self._heap[0]
            if fragment.entry == entry:
                return tuple_
            heappop(self._heap)

    def _offer(self, fragment: RunFragment) -> None:
        """Push a new heap entry for a changed fragment of a run."""
        fragment.entry = next(self._entries)
        heappush(self._heap, self._entry(fragment))
        if len(self._heap) > 4 * self._fragments + _HEAP_SLACK:
            self._heap = [found for found in self._heap if found[3].entry == found[2]]
            heapify(self._heap)

    def _withdraw(self, fragment: RunFragment) -> None:
        fragment.entry = -1
        self._fragments -= 1

    def _entry(self, fragment: RunFragment) -> _HeapEntry:
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
        """Return the cost of dropping the first or last tuple of a fragment of a run.

        `dropped` is the length of the dropped tuple, and `length` is the length of the fragment.
        """
        threshold = self._threshold
        if threshold is None or grows:
            return self._lost * (dropped / length)
        if length < threshold:
            return 0.0
        rest = length - dropped
        return self._lost * ((length - (rest if rest >= threshold else 0)) / length)

    def _grows(self, last: Tuple) -> bool:
        """Return True if the newest tuple of the partition extends the run of `last`.

        A tuple that is being removed is still linked, so its predecessor does not count as growing.
        """
        if not self.method.lookahead:
            return False
        assert last.chain is not None
        follower = last.chain.follower
        return follower is not None and follower.begin == last.end and follower.values == last.values

    # -- fragments of runs ------------------------------------------------------------------------------

    def _added(self, tuple_: Tuple) -> None:
        tuple_.tie = self.method.tie(tuple_.serial)
        before = tuple_.before
        if before is not None and tuple_.extends(before.values, before.end):
            fragment: RunFragment = before.fragment
            fragment.last = tuple_
        else:
            if before is not None:
                self._offer(before.fragment)  # the cost may change, as this fragment cannot grow any more
            fragment = RunFragment(tuple_)
            self._fragments += 1
        self._take(fragment, tuple_)
        self._offer(fragment)

    def _take(self, fragment: RunFragment, tuple_: Tuple) -> None:
        tuple_.fragment = fragment
        if self._any:
            heappush(fragment.by_length, (tuple_.length, tuple_.tie, tuple_))

    def _after_follower_change(self, chain: TupleChain) -> None:
        if chain.last is not None:
            self._offer(chain.last.fragment)

    def _before_remove(self, tuple_: Tuple) -> None:
        fragment: RunFragment = tuple_.fragment
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

    def _split(self, fragment: RunFragment, tuple_: Tuple) -> None:
        """Split a fragment of a run at a dropped tuple; the smaller part becomes a new fragment.

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
            moved = self._new_fragment(first, left)
            fragment.first = right
        else:
            moved = self._new_fragment(right, last)
            fragment.last = left
        self._fragments += 1
        self._offer(fragment)
        self._offer(moved)

    def _new_fragment(self, first: Tuple, last: Tuple) -> RunFragment:
        moved = RunFragment(first)
        moved.last = last
        current: Tuple | None = first
        while current is not None:
            self._take(moved, current)
            current = current.after if current is not last else None
        return moved


# RAND (shedding of a random tuple), the baseline of other methods (L18).


class RandomMemory(ChainMemory):
    """Store that drops a random tuple when full.

    Which slot is emptied depends only on the seed and the number of tuples dropped before.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        self.method = method
        self._slots: list[Tuple] = []
        self._indices: dict[int, int] = {}
        self._drawn = 0

    def _victim(self) -> Tuple:
        self._drawn += 1
        return self._slots[splitmix64(self._drawn, self.method.seed) % len(self._slots)]

    def _added(self, tuple_: Tuple) -> None:
        self._indices[tuple_.serial] = len(self._slots)
        self._slots.append(tuple_)

    def _before_remove(self, tuple_: Tuple) -> None:
        """Move the tuple in the last slot to the slot of the removed tuple."""
        index, last = self._indices.pop(tuple_.serial), self._slots.pop()
        if last is not tuple_:
            self._slots[index] = last
            self._indices[last.serial] = index

    def state(self) -> dict[str, Any]:
        slots = [tuple_.serial for tuple_ in self._slots]
        return super().state() | {"slots": slots, "drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        by_serial = {tuple_.serial: tuple_ for tuple_ in self._slots}
        self._slots = [by_serial[serial] for serial in state["slots"]]
        self._indices = {serial: index for index, serial in enumerate(state["slots"])}
        self._drawn = state["drawn"]


# Cost of dropping one tuple, as the specification defines the cost (L15, L23).


def run_around(kept: Sequence[Tuple], index: int) -> tuple[int, int]:
    """Return the first and last index of the adjacent tuples that have the same values as one tuple."""
    first = last = index
    while first > 0 and kept[first].extends(kept[first - 1].values, kept[first - 1].end):
        first -= 1
    while last + 1 < len(kept) and kept[last + 1].extends(kept[last].values, kept[last].end):
        last += 1
    return first, last


def cost(
    kept: Sequence[Tuple], index: int, follower: NewestTuple | None, method: Method, whole: int | None = None
) -> tuple[float, bool]:
    """Return the cost of dropping a tuple, and whether dropping it splits a result row.

    `kept` are the stored tuples of the partition in order of time. Lost time is measured as a share of the
    stored adjacent tuples with equal values, or of `whole`, their length before load shedding (L15).
    """
    first, last = run_around(kept, index)
    begin, end, dropped = kept[first].begin, kept[last].end, kept[index]
    grows = method.lookahead and follower is not None and follower.extends(kept[last].values, end)
    inner = index > first and (index < last or grows)
    of = end - begin if whole is None else whole
    if method.threshold is None or grows:
        return method.split * inner + method.lost * ((dropped.end - dropped.begin) / of), inner
    if end - begin < method.threshold:
        return 0.0, inner
    parts = [part for part in (dropped.begin - begin, end - dropped.end) if part and part >= method.threshold]
    lost = (end - begin - sum(parts)) / of
    return method.split * max(0, len(parts) - 1) + method.lost * lost, inner


# Choice of the tuple store for a memory budget.


def memory_of(budget: Budget, extent: int | None = None, slide: int = 1) -> ChainMemory:
    """Return an empty tuple store with the capacity and shedding method of a budget.

    `extent` and `slide` describe the query's window.
    """
    method = method_of(budget.method, budget.threshold, weights=budget.weights)
    if budget.slot is Slot.RUNS:
        return RunMemory(budget.capacity, method, extent or 0, slide)
    if method.blind:
        return RandomMemory(budget.capacity, method)
    if method.original:
        return OriginalRunMemory(budget.capacity, method)
    # An inner tuple may have the least cost if splitting a run costs less than losing all its time.
    any_tuple = 0 < method.split < method.lost or (method.split == 0 and method.threshold is not None)
    return ScanMemory(budget.capacity, method) if any_tuple else FastMemory(budget.capacity, method)
