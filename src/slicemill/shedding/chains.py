"""Memory of tuples in chains by partition, with eviction by capacity (L14, L16).

`ChainMemory` is the common part of all memories. A tuple is added when its end is known, which is when the
next tuple of its partition arrives. That next tuple, the follower, is stored separately and is never
dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from slicemill.storage.codec import stored_as

Values = Hashable


@stored_as("shed.follower", version=1)
class NewestTuple(NamedTuple):
    """Newest tuple of a partition, whose end is not known yet."""

    values: Values
    begin: int

    def goes_on(self, values: Values, end: int) -> bool:
        """Return True if the tuple continues a run that ends at `end`."""
        return self.begin == end and self.values == values


class Tuple:
    """A tuple with its interval, or several merged tuples.

    `number` counts arrivals in its partition, and `serial` all arrivals. `run` is the number of its run
    before anything was dropped, and `tie` its rank among tuples of equal cost.
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
    """Kept tuples of one partition, oldest first."""

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
    """A dropped tuple with its partition."""

    partition: Hashable
    tuple: Tuple


class ChainMemory(ABC):
    """Up to `capacity` tuples of all partitions, and their followers."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0
        self.chains: dict[Hashable, TupleChain] = {}

    def arrive(
        self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None
    ) -> DroppedTuple | None:
        """Add a tuple that ends its predecessor's period.

        Return the dropped tuple, if any. `closed` is the predecessor, or None if it forms no run.
        `follower` is the new tuple, or None if it forms no run.
        """
        self.add(partition, closed, follower)
        return self.shed()

    def add(self, partition: Hashable, closed: Tuple | None, follower: NewestTuple | None) -> None:
        """Like `arrive`, without dropping."""
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
        """Expire tuples of a partition that begin earlier, or have lower numbers.

        Expired tuples do not count as dropped.
        """
        chain = self.chains.get(partition)
        while chain is not None and (oldest := chain.first) is not None:
            if (begin is None or oldest.begin >= begin) and (number is None or oldest.number >= number):
                break
            self._remove(oldest)

    def forget(self, partition: Hashable) -> None:
        """Remove a partition that has nothing in the window."""
        self.expire(partition, number=2**63)
        self.chains.pop(partition, None)

    def kept(self, partition: Hashable) -> list[Tuple]:
        return list(self.chains.get(partition, ()))

    @property
    def beside(self) -> int:
        """Return the number of timestamps stored beside tuples."""
        return 0

    @abstractmethod
    def _victim(self) -> Tuple:
        """Return the tuple to drop."""

    def _added(self, tuple_: Tuple) -> None:  # noqa: B027 - not all need it
        """Called after a tuple was appended to its chain."""

    def _removing(self, tuple_: Tuple) -> None:  # noqa: B027 - not all need it
        """Called before a tuple is removed from its chain."""

    def _followed(self, chain: TupleChain) -> None:  # noqa: B027 - not all need it
        """Called after the follower of a chain has changed."""

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
        """Return the stored form: chains as lists, from which everything is derived."""
        chains = [
            (key, chain.follower, [tuple_.plain() for tuple_ in chain]) for key, chain in self.chains.items()
        ]
        return {"chains": chains}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill an empty memory of the same kind from its stored form."""
        for key, follower, tuples in state["chains"]:
            chain = self.chains[key] = TupleChain(key)
            chain.follower = follower
            for plain in tuples:
                self._append(chain, Tuple(*plain))
