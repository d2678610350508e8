"""State and rules of one machine of a ring: builds, probes, partial results (S28-S32).

A machine that receives a probe first forwards tuples that are now too old for its slice, then the probe, and
then compares. So the purged tuples precede the probe on every node (Lemma 7). A tuple that an older probe in
flight may still need stays here until that probe has ended, even if a newer probe has forwarded it. Each
probe sees a tuple on exactly one node, chosen by age (S32). With a single tuple in flight, no forwarded
tuple stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from slicemill_oracle.slices.items import Item


class Build(NamedTuple):
    """Message: a tuple to store, new or from the previous slice."""

    item: Item


class Probe(NamedTuple):
    """Message: a new tuple on its way round the ring, starting at `start`.

    No probe in flight can match tuples that are too old for `horizon`.
    """

    item: Item
    start: int
    horizon: int


class Intermediate(NamedTuple):
    """Message: a partial result on its round, possibly its schema's END (S30).

    A message without items is only the END mark; it is sent if the start node found no match. `length` is
    the number of streams in the schema.
    """

    items: tuple[Item, ...]
    queries: int
    born: int
    length: int
    probe: Probe
    end: bool = False


class ProbeEnd(NamedTuple):
    """Message: the last END of a tuple. All work for the tuple is complete."""

    probe: Probe


@dataclass(slots=True)
class StreamState:
    """Stored tuples of one stream, oldest first.

    The first `sent` tuples are also on the next node.
    """

    items: deque[Item] = field(default_factory=deque)
    sent: int = 0

    def expire(self, now: int, end: float) -> Iterator[Item]:
        """Yield tuples older than the slice, once each, to be sent on."""
        while self.sent < len(self.items) and now - self.items[self.sent].ts >= end:
            self.sent += 1
            yield self.items[self.sent - 1]

    def oldest(self) -> Item | None:
        """Return the oldest tuple that is only stored here."""
        return self.items[self.sent] if self.sent < len(self.items) else None

    def delete(self, in_flight: dict[int, Item], end: float) -> None:
        """Delete tuples that were sent on and that no probe here needs."""
        while self.sent and not any(
            self.items[0].number < probe.number and probe.ts - self.items[0].ts < end
            for probe in in_flight.values()
        ):
            self.items.popleft()
            self.sent -= 1


class RingNode:
    """States of a machine and its probes in flight."""

    def __init__(self, streams: int) -> None:
        self.states = [StreamState() for _ in range(streams)]
        self.in_flight: dict[int, Item] = {}

    @property
    def size(self) -> int:
        """The number of stored tuples of all streams."""
        return sum(len(state.items) for state in self.states)

    def visible(self, stream: int, probe: Item, low: float, high: float) -> list[Item]:
        """Return tuples older than a probe with ages in [`low`, `high`)."""
        return [
            item
            for item in self.states[stream].items
            if item.number < probe.number and low <= probe.ts - item.ts < high
        ]
