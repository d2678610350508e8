"""Shared join of many queries on a ring, by masks (S25, S45-S50)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.operators.join.slices.workload import Member, queries_reaching, windows
from slicemill.types import Row, Timed
from slicemill_oracle.slices.items import Item
from slicemill_oracle.slices.multiway import Matches
from slicemill_oracle.slices.selection import Evaluate, SliceSelection, evaluate_predicate


@dataclass(frozen=True, slots=True)
class RingResult:
    """Complete join result with its queries and time of completion."""

    items: tuple[Item, ...]
    queries: int
    at: float

    @property
    def newest(self) -> Item:
        """Return the joined tuple that arrived last. The result has its timestamp."""
        return self.items[0]

    def in_stream_order(self) -> Row:
        """Return the values of the joined tuples, in stream order."""
        by_stream = sorted(self.items, key=lambda item: item.side)
        return tuple(value for item in by_stream for value in item.row)


class RingJoin:
    """Queries over the same streams: filters, windows and join conditions.

    `orders[i]` lists the streams that a tuple of stream i probes in turn, by default all others in order.
    """

    def __init__(
        self,
        members: Sequence[Member],
        matches: Matches,
        *,
        orders: Sequence[Sequence[int]] | None = None,
        evaluate: Evaluate = evaluate_predicate,
    ) -> None:
        self.members = members
        self.streams = len(members[0].sides)
        every = range(self.streams)
        self.windows = [windows(members, stream)[-1] for stream in every]
        self._matches = matches
        self._orders = orders or [[other for other in every if other != one] for one in every]
        self._selections = [SliceSelection(members, stream, evaluate) for stream in every]
        self._reach: dict[tuple[int, float], int] = {}

    def item(self, number: int, stream: int, tuple_: Timed) -> Item:
        """Return an arriving tuple with its mask, 0 if not needed."""
        return Item(stream, number, tuple_.ts, tuple_.row, self._selections[stream].mask(tuple_.row))

    def probes(self, items: Sequence[Item]) -> int:
        """Return the stream to probe next, the schema's active state (S29)."""
        return self._orders[items[0].side][len(items) - 1]

    def reach(self, stream: int, age: float) -> int:
        """Return the queries whose window on a stream is longer than an age (S46)."""
        known = self._reach.get((stream, age))
        if known is None:
            known = self._reach[stream, age] = queries_reaching(self.members, stream, age)
        return known

    def match(self, items: Sequence[Item], queries: int, found: Item) -> int:
        """Return the mask of queries after adding a tuple, 0 without a match."""
        left = queries & found.mask & self.reach(found.side, items[0].ts - found.ts)
        if left and all(self._matches(one.side, one.row, found.side, found.row) for one in items):
            return left
        return 0
