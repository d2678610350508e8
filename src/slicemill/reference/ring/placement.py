"""Where a ring stores a tuple (S27, S33, S39, S40).

`Slices`: a new tuple enters at the first node and is pushed on as it ages. `Roles`: a new tuple stays on the
node that is the head when it comes, and the head's role goes round, against the direction of the probes, onto
the node whose tuples are the oldest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from slicemill.reference.ring.join import RingJoin
from slicemill.reference.slices.items import Item


class Slices:
    """PSP: node i has the ages from ends[i - 1] to ends[i] of each stream (S27).

    `ends` has a list per stream; by default all nodes have equal parts of the window. `capacity` bounds every
    node but the last one (S39).
    """

    in_order = True
    """Tuples begin at one node, so that they come to every other in the order of their arrival."""

    def __init__(
        self,
        join: RingJoin,
        nodes: int,
        ends: Sequence[Sequence[float]] | None = None,
        capacity: float = float("inf"),
    ) -> None:
        self.nodes = nodes
        self._windows = join.windows
        self._capacity = capacity
        self._ends = [list(one) for one in ends] if ends else self._equal(nodes)

    def start(self, _item: Item) -> int:
        """The node at which a new tuple is stored and begins its round."""
        return 0

    def ages(self, node: int, stream: int) -> tuple[float, float]:
        """From which age on a node has tuples of a stream, and from which on not any more."""
        ends = self._ends[stream]
        return (ends[node - 1] if node else 0.0), ends[node]

    def next_holder(self, node: int, stream: int) -> int | None:
        """The node to which a tuple goes that has become too old for this one."""
        ends = self._ends[stream]
        return next((later for later in range(node + 1, self.nodes) if ends[later] > ends[later - 1]), None)

    def capacity(self, node: int, stream: int) -> float:
        """How many tuples a node may have before the oldest must go on, whatever their age."""
        return self._capacity if self.next_holder(node, stream) is not None else float("inf")

    def spread_over(self, nodes: int) -> None:
        """Passive adjustment: new ends; tuples follow as they age (S40).

        Nodes that go get an empty slice: they keep what they have until it has expired.
        """
        self.nodes = max(self.nodes, nodes)
        self._ends = [[*ends, *[ends[-1]] * (self.nodes - nodes)] for ends in self._equal(nodes)]

    def relocate(self, nodes: int, _now: int) -> None:
        """Equal slices on so many nodes at once (S41)."""
        self.nodes = nodes
        self._ends = self._equal(nodes)

    def node_of(self, age: float, stream: int) -> int:
        """The node that has tuples of an age within the window."""
        return bisect_right(self._ends[stream], age)

    def _equal(self, nodes: int) -> list[list[float]]:
        return [[*(window * part / nodes for part in range(1, nodes)), window] for window in self._windows]


class Roles:
    """PSP-D: tuples stay, and the role of the head moves (S33).

    `lengths` says how much time a node takes as the head, for each node; by default equal parts of a stream's
    window. `capacity` lets the head move on by count (S39).
    """

    in_order = False

    def __init__(
        self,
        join: RingJoin,
        nodes: int,
        lengths: Sequence[float] | None = None,
        capacity: float = float("inf"),
    ) -> None:
        self.nodes = nodes
        self._windows = join.windows
        self._capacity = capacity
        self._shares = [length / sum(lengths) for length in lengths] if lengths else [1 / nodes] * nodes
        self._heads = [0] * join.streams
        self._since: list[float | None] = [None] * join.streams
        self._taken = [0] * join.streams

    def start(self, item: Item) -> int:
        stream = item.side
        since = self._since[stream]
        if since is None:
            since = float(item.ts)
        while item.ts - since >= (length := self._length(stream)):
            # Exactly by the head's own length, also over gaps: then the node that is next has just expired.
            since += length
            self._move(stream)
        if self._taken[stream] >= self._capacity:
            since = float(item.ts)
            self._move(stream)
        self._since[stream] = since
        self._taken[stream] += 1
        return self._heads[stream]

    def ages(self, _node: int, stream: int) -> tuple[float, float]:
        return 0.0, self._windows[stream]

    def next_holder(self, _node: int, _stream: int) -> int | None:
        return None

    def capacity(self, _node: int, _stream: int) -> float:
        return float("inf")

    def spread_over(self, nodes: int) -> None:
        """Passive adjustment: the head goes over so many nodes from its next move on (S40).

        Nodes that go keep what they have until it has expired.
        """
        self.nodes = max(self.nodes, nodes)
        self._shares = [1 / nodes] * nodes

    def relocate(self, nodes: int, now: int) -> None:
        """Equal lengths on so many nodes at once (S41): the node with the oldest tuples is the next head."""
        self.nodes = nodes
        self._shares = [1 / nodes] * nodes
        self._heads = [nodes - 1] * len(self._windows)
        self._since = [float(now)] * len(self._windows)
        self._taken = [0] * len(self._windows)

    def node_of(self, age: float, stream: int) -> int:
        """The node that has tuples of an age within the window, right after a relocation."""
        return int(age * self.nodes // self._windows[stream])

    def _length(self, stream: int) -> float:
        head = min(self._heads[stream], len(self._shares) - 1)
        return self._windows[stream] * self._shares[head]

    def _move(self, stream: int) -> None:
        head = self._heads[stream] - 1
        self._heads[stream] = head if 0 <= head < len(self._shares) else len(self._shares) - 1
        self._taken[stream] = 0


def even_ends(sizes: Sequence[Sequence[float]], nodes: int) -> list[list[int]]:
    """Deal slices of expected sizes, stream by stream, to nodes with equal totals (S38, S51).

    Gives the node of each slice. Probing costs what a node has stored, and the slowest node governs.
    """
    flat = [size for stream in sizes for size in stream]
    whole = sum(flat) or 1.0
    middles = [after - size / 2 for after, size in zip(accumulate(flat), flat, strict=True)]
    dealt = iter(min(nodes - 1, int(nodes * middle / whole)) for middle in middles)
    return [[next(dealt) for _ in stream] for stream in sizes]
