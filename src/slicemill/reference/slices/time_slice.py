"""One slice of a binary window join: `A[WsA, WeA) |x| B[WsB, WeB)` (S9, S11).

A slice checks only where its ages end, when a probing tuple comes: what is too old leaves, ahead of the
probe. Where they begin is enforced by the slice before it, which sends nothing younger. So probing compares
no times.

With only left tuples stored and only right ones probing it is the one-way join `A[Ws, We) x B`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from slicemill.operators.join.slices.spans import AgeSpan
from slicemill.reference.slices.items import Item
from slicemill.rows import Row

Condition = Callable[[Row, Row], bool]
"""Whether a left and a right row match."""


class TimeSlice:
    """State of both streams, oldest first."""

    counts_tuples: ClassVar[bool] = False

    def __init__(self, left: AgeSpan, right: AgeSpan) -> None:
        self.spans = [left, right]
        self.states: tuple[deque[Item], deque[Item]] = (deque(), deque())

    def insert(self, item: Item) -> list[Item]:
        """Store a tuple; gives what has to leave for that: nothing, since only time makes tuples leave."""
        self.states[item.side].append(item)
        return []

    def purge(self, probe: Item) -> list[Item]:
        """Remove what is too old for this probe and, as probes come in order, for all later ones
        (cross-purge)."""
        state = self.states[1 - probe.side]
        end = self.spans[1 - probe.side].end
        leaving = []
        while state and self.is_past(probe.ts - state[0].ts, end):
            leaving.append(state.popleft())
        return leaving

    def is_past(self, age: float, end: float) -> bool:
        return age >= end

    def partners(self, probe: Item, condition: Condition) -> list[tuple[Item, float]]:
        """The stored tuples that match, each with its age: every one is compared (nested loops)."""
        row, ts = probe.row, probe.ts
        if probe.side == 0:
            return [(item, ts - item.ts) for item in self.states[1] if condition(row, item.row)]
        return [(item, ts - item.ts) for item in self.states[0] if condition(item.row, row)]


class ClosedTimeSlice(TimeSlice):
    """Keeps tuples up to and including age `end`, as the published trace does; definitions are half-open."""

    def is_past(self, age: float, end: float) -> bool:
        return age > end
