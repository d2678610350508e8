"""Tuples that are kept, in chains by partition, and how one of them has to go when they are too many.

What is common to all memories (L14, L16). A tuple is offered when its end is known, that is when the next one
of its partition arrives; the next one, its follower, waits beside the memory and is never dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from slicemill.storage.codec import stored_as

Values = Hashable


@stored_as("shed.follower", version=1)
class NewestTuple(NamedTuple):
    """The newest tuple of a partition, whose end is not known yet."""

    values: Values
    begin: int

    def goes_on(self, values: Values, end: int) -> bool:
        """Does it continue a run of these values that ends there?"""
        return self.begin == end and self.values == values


class Tuple:
    """A tuple with its interval, or several that have been put together.

    `number` counts arrivals in its partition, `serial` in all; `run` is the number of the run that it was in
    before anything was dropped, `tie` its place among tuples that cost the same.
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

    def goes_on(self, values: Values, end: int) -> bool:
        return self.begin == end and self.values == values

    @property
    def length(self) -> int:
        return self.end - self.begin

    def plain(self) -> tuple[Any, ...]:
        return self.values, self.begin, self.end, self.number, self.serial, self.run, self.count


class TupleChain:
    """The kept tuples of one partition, oldest first."""

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
    """A tuple that had to go, and whose it was."""

    partition: Hashable
    tuple: Tuple


class ChainMemory(ABC):
    """At most `capacity` tuples over all partitions, and their followers."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0
        self.chains: dict[Hashable, TupleChain] = {}

    def arrive(
        self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None
    ) -> DroppedTuple | None:
        """A tuple of a partition closes the one before it. Returns what has to be dropped for that, if any.

        `closed` is None where the one before makes no run; so is `follower` for the new one.
        """
        self.add(partition, closed, follower)
        return self.shed()

    def add(self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None) -> None:
        """The same without dropping anything, however much is held."""
        chain = self.chains.get(partition)
        if chain is None:
            chain = self.chains[partition] = TupleChain(partition)
        chain.follower = follower
        if closed is None:
            self._followed(chain)
        else:
            self._append(chain, closed)

    def shed(self) -> DroppedTuple | None:
        """Drop one tuple if there are too many."""
        if self.held <= self.capacity:
            return None
        victim = self._victim()
        assert victim.chain is not None
        partition = victim.chain.partition
        self._remove(victim)
        return DroppedTuple(partition, victim)

    def expire(self, partition: Hashable, begin: int | None = None, number: int | None = None) -> None:
        """Forget the tuples of a partition that begin earlier, or have lower numbers: the window has passed
        them, and they count for no loss."""
        chain = self.chains.get(partition)
        while chain is not None and (oldest := chain.first) is not None:
            if (begin is None or oldest.begin >= begin) and (number is None or oldest.number >= number):
                break
            self._remove(oldest)

    def forget(self, partition: Hashable) -> None:
        """Nothing of the partition is in the window any more."""
        self.expire(partition, number=2**63)
        self.chains.pop(partition, None)

    def kept(self, partition: Hashable) -> list[Tuple]:
        return list(self.chains.get(partition, ()))

    @property
    def beside(self) -> int:
        """How many times are kept beside tuples."""
        return 0

    @abstractmethod
    def _victim(self) -> Tuple:
        """Which tuple goes."""

    def _added(self, tuple_: Tuple) -> None:  # noqa: B027 - not all need it
        """A tuple is at the end of its chain."""

    def _removing(self, tuple_: Tuple) -> None:  # noqa: B027 - not all need it
        """A tuple is about to leave its chain."""

    def _followed(self, chain: TupleChain) -> None:  # noqa: B027 - not all need it
        """The follower of a chain is another one."""

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
        self._removing(tuple_)
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
        """What is stored of it: its chains as lists, from which all else follows."""
        chains = [
            (key, chain.follower, [tuple_.plain() for tuple_ in chain]) for key, chain in self.chains.items()
        ]
        return {"chains": chains}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill an empty memory with what was stored of another one of the same kind."""
        for key, follower, tuples in state["chains"]:
            chain = self.chains[key] = TupleChain(key)
            chain.follower = follower
            for plain in tuples:
                self._append(chain, Tuple(*plain))
