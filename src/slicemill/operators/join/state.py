"""State of a join between runs: query bits, waiting rows, slices and measurements."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.join.arrays import Times
from slicemill.operators.join.block import SEQ, TS, Block, column_numbers, opened
from slicemill.operators.join.inspection import Cuts, SliceContent
from slicemill.operators.join.measures import Measures
from slicemill.operators.join.slices.statistics import Statistics
from slicemill.operators.join.windows import QueryBits, reach_of
from slicemill.shedding.report import Report
from slicemill.storage.codec import register, stored_as
from slicemill.storage.slice import Slice


class Stored:
    """Slice with statistics that are known without opening it."""

    def __init__(self, slice_: Slice, known: dict[str, Any]) -> None:
        self.slice = slice_
        self.rows: int = known["rows"]
        self.earliest: int = known["earliest"]
        self.latest: int = known["latest"]
        self.last_number: int = known["last_number"]
        self.live: NDArray[np.uint64] = known["live"]
        self.wanted: dict[str, int] = known["wanted"]  # rows by query
        self.last: dict[str, int] = known["last"]  # rows by the selecting query with the longest window
        pending: NDArray[np.uint64] | None = known["pending"]
        self.pending = None if pending is None else np.require(pending, requirements="W")
        # With an expiry column: when the last row expires, by query, and when half of all rows have expired.
        self.ends: dict[str, int] = known["ends"]
        self.half_over: int | None = known["half_over"]
        self._block: Block | None = None

    def plain(self) -> dict[str, Any]:
        """Return all fields except the lazily opened block."""
        return {name: value for name, value in vars(self).items() if name != "_block"}

    def block(self, words: int) -> Block:
        if self._block is None or self._block.words.shape[1] != words:
            self._block = replace(opened(self.slice.table, words), pending=self.pending)
        return self._block

    def stay_pending(self, allowed: NDArray[np.uint64]) -> None:
        """Restrict pending bits to these queries, and resize them to its words."""
        if self.pending is not None:
            words = np.zeros((self.rows, len(allowed)), np.uint64)
            kept = min(words.shape[1], self.pending.shape[1])
            words[:, :kept] = self.pending[:, :kept] & allowed[:kept]
            self.pending, self._block = words, None


@stored_as("join.side", version=2, upgrade={1: lambda old: {**old, "lone": None}})
@dataclass(slots=True)
class SideState:
    """State of one side of a join.

    `seen` counts the rows of the stream that the other side has already been joined with. `moments` are the
    times of the rows that follow. Both are maintained only while rows are numbered.
    """

    waiting: list[Slice | pa.Table] = field(default_factory=list)
    taken: int = 0  # rows of the first waiting table that have been consumed
    slices: list[Stored] = field(default_factory=list)
    cuts_us: tuple[int, ...] | None = None  # ages at which unreachable rows are evicted; None: not planned
    seen: int = 0
    moments: Times = field(default_factory=lambda: np.zeros(0, np.int64))
    # Rows with a NULL key that are to be emitted without a partner, in time order.
    lone: pa.Table | None = None

    def has_numbers(self) -> bool:
        """Return True if slices store the row numbers."""
        return bool(self.slices) and SEQ in self.slices[-1].slice.table.column_names

    def held(self) -> list[SliceContent]:
        found = [SliceContent("", s.slice, s.rows, s.earliest, s.latest, s.wanted) for s in self.slices]
        for number, waiting in enumerate(self.waiting):
            stored = waiting if isinstance(waiting, Slice) else None
            times = column_numbers(table_of(waiting), TS)[0 if number else self.taken :]
            found.append(SliceContent(", waiting", stored, len(times), int(times[0]), int(times[-1]), {}))
        return found


@stored_as("join", version=1)
@dataclass(slots=True)
class JoinState:
    seats: QueryBits = field(default_factory=lambda: QueryBits({}, {}))
    sides: tuple[SideState, SideState] = field(default_factory=lambda: (SideState(), SideState()))
    measures: Measures = field(default_factory=Measures)
    sheds: dict[str, Report] = field(default_factory=dict)  # by query with load shedding

    def held(self) -> list[SliceContent]:
        """List the slices of each side, oldest first, and the waiting rows."""
        return [
            SliceContent(
                f"input {number}{part.part}", part.slice, part.rows, part.earliest, part.latest, part.wanted
            )
            for number, side in enumerate(self.sides)
            for part in side.held()
        ]

    def statistics(self) -> Statistics | None:
        """Return the measurements for the planner's cost formulas."""
        return self.measures.statistics()

    def cuts(self) -> list[Cuts]:
        """Return the planned cuts of each side, with the current measurements."""
        found: list[Cuts] = []
        for number, side in enumerate(self.sides):
            cuts = self.measures.cuts(number, reach_of(self.seats, number))
            if cuts is not None and side.cuts_us is not None:
                found.append(replace(cuts, used=tuple(cut / 1_000_000 for cut in side.cuts_us)))
        return found


register(
    "join.stored",
    3,
    Stored,
    Stored.plain,
    lambda plain: Stored(plain["slice"], plain),
    upgrade={
        1: lambda old: {**old, "pending": None},
        2: lambda old: {**old, "ends": {}, "half_over": None},
    },
)


def table_of(held: Slice | pa.Table) -> pa.Table:
    return held.table if isinstance(held, Slice) else held
