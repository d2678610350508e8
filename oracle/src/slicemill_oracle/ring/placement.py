"""Placement of tuples on a ring (S27, S33, S39, S40).

`SlicePlacement`: a new tuple enters at the first node and is passed on as it ages. `RolePlacement`: a new
tuple stays on the current head. The role of the head moves on to the node with the oldest tuples, against
the direction of probes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from slicemill_oracle.ring.join import RingJoin
from slicemill_oracle.slices.items import Item


class SlicePlacement:
    """PSP: node i stores ages ends[i - 1] to ends[i] (S27).

    `ends` has a list per stream; by default, windows are divided equally. `capacity` bounds every node but
    the last (S39).
    """

    in_order = True
    """True: all tuples start at one node, so they reach all other nodes in order."""

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
        """Return the node that stores a new tuple and starts its probe."""
        return 0

    def ages(self, node: int, stream: int) -> tuple[float, float]:
        """Return the range of ages that a node stores of a stream."""
        ends = self._ends[stream]
        return (ends[node - 1] if node else 0.0), ends[node]

    def next_holder(self, node: int, stream: int) -> int | None:
        """Return the node that receives tuples that are too old for this node."""
        ends = self._ends[stream]
        return next((later for later in range(node + 1, self.nodes) if ends[later] > ends[later - 1]), None)

    def capacity(self, node: int, stream: int) -> float:
        """Return the maximal number of tuples of a node, regardless of age."""
        return self._capacity if self.next_holder(node, stream) is not None else float("inf")

    def spread_over(self, nodes: int) -> None:
        """Passive adjustment: set new ends. Tuples move as they age (S40).

        Removed nodes get an empty slice and store their tuples until these expire.
        """
        self.nodes = max(self.nodes, nodes)
        self._ends = [[*ends, *[ends[-1]] * (self.nodes - nodes)] for ends in self._equal(nodes)]

    def relocate(self, nodes: int, _now: int) -> None:
        """Divide slices equally over `nodes` nodes, immediately (S41)."""
        self.nodes = nodes
        self._ends = self._equal(nodes)

    def node_of(self, age: float, stream: int) -> int:
        """Return the node that stores tuples of an age."""
        return bisect_right(self._ends[stream], age)

    def _equal(self, nodes: int) -> list[list[float]]:
        return [[*(window * part / nodes for part in range(1, nodes)), window] for window in self._windows]


class RolePlacement:
    """PSP-D: tuples stay, and the role of the head moves (S33).

    `lengths` are the times for which each node is the head, by default equal parts of a stream's window. With
    `capacity`, the head also moves by count (S39).
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
            # Advance by the head's exact length, even over gaps.
            # The next head's tuples have then just expired.
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
        """Passive adjustment: use `nodes` nodes from the head's next move on (S40).

        Removed nodes store their tuples until these expire.
        """
        self.nodes = max(self.nodes, nodes)
        self._shares = [1 / nodes] * nodes

    def relocate(self, nodes: int, now: int) -> None:
        """Use `nodes` nodes with equal lengths, immediately (S41).

        The node with the oldest tuples is the next head.
        """
        self.nodes = nodes
        self._shares = [1 / nodes] * nodes
        self._heads = [nodes - 1] * len(self._windows)
        self._since = [float(now)] * len(self._windows)
        self._taken = [0] * len(self._windows)

    def node_of(self, age: float, stream: int) -> int:
        """Return the node with tuples of an age, after a relocation."""
        return int(age * self.nodes // self._windows[stream])

    def _length(self, stream: int) -> float:
        head = min(self._heads[stream], len(self._shares) - 1)
        return self._windows[stream] * self._shares[head]

    def _move(self, stream: int) -> None:
        head = self._heads[stream] - 1
        self._heads[stream] = head if 0 <= head < len(self._shares) else len(self._shares) - 1
        self._taken[stream] = 0


def even_ends(sizes: Sequence[Sequence[float]], nodes: int) -> list[list[int]]:
    """Assign slices to nodes with equal total sizes (S38, S51).

    Return the node of each slice, by stream. Probing costs grow with stored tuples, and the slowest node
    decides.
    """
    flat = [size for stream in sizes for size in stream]
    whole = sum(flat) or 1.0
    middles = [after - size / 2 for after, size in zip(accumulate(flat), flat, strict=True)]
    dealt = iter(min(nodes - 1, int(nodes * middle / whole)) for middle in middles)
    return [[next(dealt) for _ in stream] for stream in sizes]
