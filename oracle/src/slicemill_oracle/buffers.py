"""FIFO buffers on the arcs of the query graph (M1, M20).

A buffer is one physical queue with a reader per consumer. With several readers (a tuple-sharing fork),
each reader is a dummy buffer: a head pointer into the queue. A tuple is freed when every reader has
passed it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from slicemill.types import Timed
from slicemill_oracle.punctuation import MARK, Item


class Occupancy:
    """Current and peak number of items in all buffers, including punctuation."""

    __slots__ = ("peak", "total")

    def __init__(self) -> None:
        self.total = 0
        self.peak = 0


class Buffer:
    """Output queue of a node. Without readers, items are dropped."""

    __slots__ = ("base", "items", "occupancy", "readers")

    def __init__(self, occupancy: Occupancy) -> None:
        self.items: deque[Item] = deque()
        self.base = 0
        self.readers: list[Reader] = []
        self.occupancy = occupancy

    def reader(self) -> Reader:
        """Add a consumer that reads items appended from now on."""
        reader = Reader(self, self.base + len(self.items))
        self.readers.append(reader)
        return reader

    def append(self, item: Item) -> None:
        readers = self.readers
        if not readers:
            return
        data = item[0].row is not MARK
        for reader in readers:
            reader.unread += 1
            reader.data += data
        self.items.append(item)
        occupancy = self.occupancy
        occupancy.total += 1
        if occupancy.total > occupancy.peak:
            occupancy.peak = occupancy.total

    def detach(self, reader: Reader) -> None:
        """Remove a consumer and free items that no other reader needs."""
        self.readers.remove(reader)
        end = self.base + len(self.items)
        self._free(min((other.position for other in self.readers), default=end))

    def replace(self, old: Reader, new: Reader) -> None:
        """Replace a reader by another reader at the same position."""
        self.readers[self.readers.index(old)] = new

    def _free(self, up_to: int) -> None:
        while self.base < up_to:
            self.items.popleft()
            self.base += 1
            self.occupancy.total -= 1


class Reader:
    """A consumer's position in a buffer.

    `unread` is the number of items left to read, and `data` the number of these that are not punctuation.
    `behind` is the reader to continue with after this buffer is exhausted. It is set when the operator that
    filled the buffer is removed, so that its output is read before the tuples that bypass it (M19).
    """

    __slots__ = ("behind", "buffer", "data", "position", "unread")

    def __init__(self, buffer: Buffer, position: int) -> None:
        self.buffer = buffer
        self.position = position
        rest = list(islice(buffer.items, position - buffer.base, None))
        self.unread = len(rest)
        self.data = sum(item[0].row is not MARK for item in rest)
        self.behind: Reader | None = None

    def head(self) -> Item:
        buffer = self.buffer
        return buffer.items[self.position - buffer.base]

    def first_data(self) -> Timed | None:
        """Return the next tuple that is not a punctuation."""
        if not self.data:
            return None
        tuple_ = self.head()[0]
        if tuple_.row is not MARK:
            return tuple_
        waiting = islice(self.buffer.items, self.position - self.buffer.base, None)
        return next(item[0] for item in waiting if item[0].row is not MARK)

    def pop(self) -> Item:
        buffer = self.buffer
        base = buffer.base
        position = self.position
        item = buffer.items[position - base]
        self.position = position + 1
        self.unread -= 1
        self.data -= item[0].row is not MARK
        if position == base:
            for other in buffer.readers:
                if other.position == base:
                    break
            else:
                buffer.items.popleft()
                buffer.base = base + 1
                buffer.occupancy.total -= 1
        if self.behind is not None:
            self._move_on()
        return item

    def copy(self) -> Reader:
        """Return another reader at the same position."""
        twin = Reader(self.buffer, self.position)
        self.buffer.readers.append(twin)
        twin.behind = self.behind.copy() if self.behind is not None else None
        return twin

    def close(self) -> None:
        """Stop reading this buffer and all linked buffers."""
        self.buffer.detach(self)
        if self.behind is not None:
            self.behind.close()

    def follow(self, upstream: Reader) -> None:
        """Continue with `upstream` after the rest of this buffer."""
        last = self
        while last.behind is not None:
            last = last.behind
        last.behind = upstream
        self._move_on()

    def _move_on(self) -> None:
        while self.behind is not None and not self.unread:
            upstream = self.behind
            self.buffer.detach(self)
            upstream.buffer.replace(upstream, self)
            self.buffer, self.position = upstream.buffer, upstream.position
            self.unread, self.data, self.behind = upstream.unread, upstream.data, upstream.behind
