"""Slice of a binary window join: `A[WsA, WeA) |x| B[WsB, WeB)` (S9, S11).

A slice checks only the end of its age range. When a probe arrives, older tuples are passed on ahead of the
probe. The start of the range needs no check, because the previous slice passes on no younger tuples. So a
probe does not compare timestamps.

If only left tuples are stored and only right tuples probe, the slice is the one-way join `A[Ws, We) x B`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from slicemill.operators.join.slices.workload import AgeSpan
from slicemill.types import Row
from slicemill_oracle.slices.items import Item

Condition = Callable[[Row, Row], bool]
"""Returns True if a left and a right row match."""


class TimeSlice:
    """State of both streams, oldest first."""

    counts_tuples: ClassVar[bool] = False

    def __init__(self, left: AgeSpan, right: AgeSpan) -> None:
        self.spans = [left, right]
        self.states: tuple[deque[Item], deque[Item]] = (deque(), deque())

    def insert(self, item: Item) -> list[Item]:
        """Store a tuple. Return the tuples that exceed the slice, here none."""
        self.states[item.side].append(item)
        return []

    def purge(self, probe: Item) -> list[Item]:
        """Remove and return tuples too old for this probe (cross-purge).

        Probes arrive in order, so later probes cannot match these tuples either.
        """
        state = self.states[1 - probe.side]
        end = self.spans[1 - probe.side].end
        leaving = []
        while state and self.is_past(probe.ts - state[0].ts, end):
            leaving.append(state.popleft())
        return leaving

    def is_past(self, age: float, end: float) -> bool:
        return age >= end

    def partners(self, probe: Item, condition: Condition) -> list[tuple[Item, float]]:
        """Return matching stored tuples with their ages, by nested loops."""
        row, ts = probe.row, probe.ts
        if probe.side == 0:
            return [(item, ts - item.ts) for item in self.states[1] if condition(row, item.row)]
        return [(item, ts - item.ts) for item in self.states[0] if condition(item.row, row)]


class ClosedTimeSlice(TimeSlice):
    """Slice that includes age `end`, as in the published trace.

    The published definitions exclude it.
    """

    def is_past(self, age: float, end: float) -> bool:
        return age > end
