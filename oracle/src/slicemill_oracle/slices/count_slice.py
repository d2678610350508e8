"""Slice of count windows: tuples with start <= rank < end (S24).

The rank of a tuple is the number of newer tuples of its stream, so it changes when such tuples arrive. A
slice that is too long passes its oldest tuples on immediately, ahead of all later probes.
"""

from __future__ import annotations

from slicemill_oracle.slices.items import Item
from slicemill_oracle.slices.time_slice import Condition, TimeSlice


class CountSlice(TimeSlice):
    """State of both streams, oldest first. Spans are numbers of tuples."""

    counts_tuples = True

    def insert(self, item: Item) -> list[Item]:
        self.states[item.side].append(item)
        return self._overflow(item.side)

    def purge(self, probe: Item) -> list[Item]:
        """Return excess tuples, which exist only after a split."""
        return self._overflow(1 - probe.side)

    def partners(self, probe: Item, condition: Condition) -> list[tuple[Item, float]]:
        side = 1 - probe.side
        oldest = self.spans[side].start + len(self.states[side]) - 1
        rank = {id(item): oldest - index for index, item in enumerate(self.states[side])}
        return [(item, rank[id(item)]) for item, _ in super().partners(probe, condition)]

    def _overflow(self, side: int) -> list[Item]:
        state = self.states[side]
        return [state.popleft() for _ in range(len(state) - int(self.spans[side].length))]
