"""Coordinated tuple routing, a published alternative: copies on several nodes (S43).

Each stream's time is cut into segments. All tuples of a segment are stored on the same `copies` random
nodes. For each stream to probe, a router picks a small set of nodes that together store all segments of
the window. Partial results are sent to all of these nodes. Each node handles its own segments of the
cover, so no pair is found twice. Hops are synchronized: the next one begins when all nodes have answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from slicemill.types import Timed
from slicemill_oracle.ring.join import RingJoin, RingResult
from slicemill_oracle.ring.machines import RingCosts
from slicemill_oracle.ring.ring import MICROSECONDS
from slicemill_oracle.slices.items import Item

Found = list[tuple[tuple[Item, ...], int]]


class CoordinatedRouting:
    """Stores every segment on `copies` nodes. Processes one tuple at a time."""

    def __init__(
        self,
        join: RingJoin,
        nodes: int,
        copies: int,
        segment: int,
        *,
        costs: RingCosts | None = None,
        random: Random | None = None,
    ) -> None:
        self.join = join
        self.nodes = nodes
        self.compared = [0] * nodes
        self.largest = 0
        self._copies = min(copies, nodes)
        self._segment = segment
        self._costs = costs or RingCosts()
        self._random = random or Random(0)
        self._segments: list[dict[int, list[Item]]] = [{} for _ in range(join.streams)]
        self._homes: dict[tuple[int, int], frozenset[int]] = {}
        self._number = 0
        self._now = 0.0

    @property
    def size(self) -> int:
        """The number of stored tuples, including copies."""
        return self._copies * sum(len(items) for stream in self._segments for items in stream.values())

    def run(self, arrivals: Iterable[tuple[int, Timed]]) -> list[RingResult]:
        """Process tuples in time order, one after the other."""
        results: list[RingResult] = []
        for stream, tuple_ in arrivals:
            item = self.join.item(self._number, stream, tuple_)
            self._number += 1
            if item.mask:
                self._now = max(self._now, tuple_.ts / MICROSECONDS)
                results += self._process(item)
        return results

    def homes(self, stream: int, segment: int) -> frozenset[int]:
        """Return the nodes that store a segment."""
        known = self._homes.get((stream, segment))
        if known is None:
            known = frozenset(self._random.sample(range(self.nodes), self._copies))
            self._homes[stream, segment] = known
        return known

    def cover(self, stream: int, segments: Sequence[int]) -> dict[int, list[int]]:
        """Return nodes that cover the segments, chosen greedily, with their segments."""
        left = set(segments)
        chosen: dict[int, list[int]] = {}
        while left:
            has = {
                node: [one for one in left if node in self.homes(stream, one)] for node in range(self.nodes)
            }
            best = max(range(self.nodes), key=lambda node: len(has[node]))
            chosen[best] = sorted(has[best])
            left -= set(has[best])
        return chosen

    def _process(self, item: Item) -> list[RingResult]:
        self._purge(item.ts)
        partials: Found = [((item,), item.mask)]
        for _ in range(self.join.streams - 1):
            if not partials:
                break
            partials = self._hop(partials)
        self._segments[item.side].setdefault(item.ts // self._segment, []).append(item)
        self.largest = max(self.largest, self.size)
        self._now += self._costs.insert + self._costs.purge + self._costs.send * self._copies
        return [RingResult(items, queries, self._now) for items, queries in partials]

    def _hop(self, partials: Found) -> Found:
        """Send partial results to a cover and wait for the slowest node."""
        stream = self.join.probes(partials[0][0])
        now, window = partials[0][0][0].ts, self.join.windows[stream]
        longer: Found = []
        slowest = 0.0
        for node, segments in self.cover(stream, list(self._segments[stream])).items():
            stored = [
                item for one in segments for item in self._segments[stream][one] if now - item.ts < window
            ]
            compared = len(stored) * len(partials)
            self.compared[node] += compared
            slowest = max(slowest, compared * self._costs.join + len(partials) * self._costs.send)
            longer += [
                ((*items, item), left)
                for items, queries in partials
                for item in stored
                if (left := self.join.match(items, queries, item))
            ]
        self._now += slowest + self._costs.hop
        return longer

    def _purge(self, now: int) -> None:
        """Drop segments that are completely outside their window."""
        for stream, segments in enumerate(self._segments):
            for one in [
                one for one in segments if now - (one + 1) * self._segment >= self.join.windows[stream]
            ]:
                del segments[one]
                self._homes.pop((stream, one), None)
