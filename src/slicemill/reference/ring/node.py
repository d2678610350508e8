"""One machine of a ring: what it does with builds, probes and partial results (S28-S32).

A probe that arrives first sends on what its age pushes out of the slice, then itself, then compares; so the
builds that it purged are ahead of it everywhere (Lemma 7). Tuples that an older probe in flight may still
need stay here until it has ended, though a newer one has sent them on: each probe sees a tuple on exactly
one node, by its age (S32). With one tuple in flight nothing stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from slicemill.reference.slices.items import Item


class Build(NamedTuple):
    """A tuple that is to be stored: new, or pushed out of the slice before."""

    item: Item


class Probe(NamedTuple):
    """A new tuple on its way round; it begins and ends its round at `start`.

    What is too old for `horizon`, no probe that is under way can see.
    """

    item: Item
    start: int
    horizon: int


class Intermediate(NamedTuple):
    """A partial result on its one round; the last of its schema at the start node says so (END, S30).

    Without members it is only the mark, where the start node found nothing to carry it. `length` is that of
    its schema: how many streams it has.
    """

    items: tuple[Item, ...]
    queries: int
    born: int
    length: int
    probe: Probe
    end: bool = False


class Finished(NamedTuple):
    """The last END of a tuple on its round: all that it led to is done where this has passed."""

    probe: Probe


@dataclass(slots=True)
class StreamState:
    """The stored tuples of one stream, oldest first; the first `sent` of them live on the next node too."""

    items: deque[Item] = field(default_factory=deque)
    sent: int = 0

    def expire(self, now: int, end: float) -> Iterator[Item]:
        """Those that the slice's end has passed, each once, to be sent on."""
        while self.sent < len(self.items) and now - self.items[self.sent].ts >= end:
            self.sent += 1
            yield self.items[self.sent - 1]

    def oldest(self) -> Item | None:
        """The oldest tuple that lives here alone."""
        return self.items[self.sent] if self.sent < len(self.items) else None

    def delete(self, in_flight: dict[int, Item], end: float) -> None:
        """Forget what was sent on and no probe in flight here can still see."""
        while self.sent and not any(
            self.items[0].number < probe.number and probe.ts - self.items[0].ts < end
            for probe in in_flight.values()
        ):
            self.items.popleft()
            self.sent -= 1


class RingNode:
    """The states of one machine and the probes that are in flight here."""

    def __init__(self, streams: int) -> None:
        self.states = [StreamState() for _ in range(streams)]
        self.in_flight: dict[int, Item] = {}

    @property
    def size(self) -> int:
        """Stored tuples, of all streams."""
        return sum(len(state.items) for state in self.states)

    def visible(self, stream: int, probe: Item, low: float, high: float) -> list[Item]:
        """The stored tuples that came before a probe and are of an age between `low` and `high`."""
        return [
            item
            for item in self.states[stream].items
            if item.number < probe.number and low <= probe.ts - item.ts < high
        ]
