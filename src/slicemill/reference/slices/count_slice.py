"""A slice of count windows: tuples with start <= rank < end, the rank being how many newer ones there are
(S24).

Ranks change when tuples of the same stream arrive, so a slice that grows too long hands on its oldest at
once, in the queue ahead of any probe that comes after.
"""

from __future__ import annotations

from slicemill.reference.slices.items import Item
from slicemill.reference.slices.time_slice import Condition, TimeSlice


class CountSlice(TimeSlice):
    """State of both streams, oldest first; spans are in tuples."""

    counts_tuples = True

    def insert(self, item: Item) -> list[Item]:
        self.states[item.side].append(item)
        return self._overflow(item.side)

    def purge(self, probe: Item) -> list[Item]:
        """Nothing is too long, except after a split has moved the slice's end."""
        return self._overflow(1 - probe.side)

    def partners(self, probe: Item, condition: Condition) -> list[tuple[Item, float]]:
        side = 1 - probe.side
        oldest = self.spans[side].start + len(self.states[side]) - 1
        rank = {id(item): oldest - place for place, item in enumerate(self.states[side])}
        return [(item, rank[id(item)]) for item, _ in super().partners(probe, condition)]

    def _overflow(self, side: int) -> list[Item]:
        state = self.states[side]
        return [state.popleft() for _ in range(len(state) - int(self.spans[side].length))]
