"""Aligned tuple routing, a published alternative: segments of one stream (S42).

One stream is the master. Its time is cut into segments, and each segment is assigned to a node. The node
receives all tuples of other streams that can match the segment, from one window before the segment to one
window after it. Nodes do not communicate. A node stores a segment's state until its next segment begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from slicemill.types import Timed
from slicemill_oracle.ring.join import RingJoin, RingResult
from slicemill_oracle.ring.machines import Machines, RingCosts
from slicemill_oracle.ring.ring import MICROSECONDS
from slicemill_oracle.slices.items import Item


@dataclass(slots=True)
class AlignedSegment:
    """State of a join over one segment of the master stream."""

    number: int
    states: list[list[Item]] = field(default_factory=list)


class AlignedRouting:
    """Assigns segments of `segment` microseconds to nodes in turn."""

    def __init__(
        self,
        join: RingJoin,
        nodes: int,
        segment: int,
        *,
        costs: RingCosts | None = None,
        random: Random | None = None,
    ) -> None:
        self.join = join
        self.machines: Machines[tuple[int, Item]] = Machines(nodes, costs or RingCosts(), random)
        self.compared = [0] * nodes
        self.largest = 0
        self._segment = segment
        self._margin = max(join.windows)
        self._held: list[dict[int, AlignedSegment]] = [{} for _ in range(nodes)]
        self._number = 0
        self._results: list[RingResult] = []

    @property
    def size(self) -> int:
        """The number of stored tuples, including copies."""
        return sum(len(state) for held in self._held for one in held.values() for state in one.states)

    def run(self, arrivals: Iterable[tuple[int, Timed]]) -> list[RingResult]:
        """Process tuples in time order until no message is left."""
        self._results = []
        for stream, tuple_ in arrivals:
            item = self.join.item(self._number, stream, tuple_)
            self._number += 1
            at = tuple_.ts / MICROSECONDS
            while self.machines.next_start <= at and self.machines.step(self._handle):
                pass
            if item.mask:
                for segment in self._segments(item):
                    self.machines.send(segment % len(self.machines), (segment, item), at)
        while self.machines.step(self._handle):
            pass
        return self._results

    def _segments(self, item: Item) -> range:
        """Return the segments that need a tuple.

        For tuples of other streams, these include the segments within a window.
        """
        margin = 0 if item.side == 0 else self._margin
        first = (item.ts - margin) // self._segment
        last = (item.ts + margin) // self._segment
        return range(int(max(0, first)), int(last) + 1)

    def _handle(self, node: int, message: tuple[int, Item]) -> None:
        number, item = message
        segment = self._on(node, number)
        costs = self.machines.costs
        self.machines.spend(costs.insert + costs.purge)
        partials: list[tuple[tuple[Item, ...], int]] = [((item,), item.mask)]
        for _ in range(self.join.streams - 1):
            partials = [longer for partial in partials for longer in self._extend(node, segment, *partial)]
        segment.states[item.side].append(item)
        self.largest = max(self.largest, self.size)
        self._results += [RingResult(items, queries, self.machines.now) for items, queries in partials]

    def _on(self, node: int, number: int) -> AlignedSegment:
        held = self._held[node]
        if number not in held:
            # Drop the node's earlier segments that no tuple can match any more.
            over = number * self._segment - self._margin
            for old in [one for one in held if (one + 1) * self._segment + self._margin <= over]:
                del held[old]
            held[number] = AlignedSegment(number, [[] for _ in range(self.join.streams)])
        return held[number]

    def _extend(
        self, node: int, segment: AlignedSegment, items: tuple[Item, ...], queries: int
    ) -> list[tuple[tuple[Item, ...], int]]:
        stream = self.join.probes(items)
        window, now = self.join.windows[stream], items[0].ts
        seen = [item for item in segment.states[stream] if now - item.ts < window]
        self.compared[node] += len(seen)
        self.machines.spend(len(seen) * self.machines.costs.join)
        return [((*items, item), left) for item in seen if (left := self.join.match(items, queries, item))]
