"""What joins of several streams keep between runs: who is there, one state per stream, what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from slicemill.operators.join.inspection import Cuts, SliceContent
from slicemill.operators.join.slices.statistics import Statistics
from slicemill.operators.join.state import SideState
from slicemill.operators.join.windows import QueryBits
from slicemill.operators.multijoin.measures import MultiJoinMeasures
from slicemill.storage.codec import stored_as


@stored_as("multijoin", version=1)
@dataclass(slots=True)
class MultiJoinState:
    seats: QueryBits = field(default_factory=lambda: QueryBits({}, {}))
    sides: dict[str, SideState] = field(default_factory=dict)  # by input
    measures: MultiJoinMeasures = field(default_factory=MultiJoinMeasures)

    def held(self) -> list[SliceContent]:
        """What each stream's slices hold, oldest first, and what waits."""
        return [
            SliceContent(
                f"{name.removeprefix('log ')}{part.part}",
                part.slice, part.rows, part.earliest, part.latest, part.wanted,
            )
            for name, side in sorted(self.sides.items())
            for part in side.held()
        ]  # fmt: skip

    def statistics(self) -> Statistics | None:
        """Those of a chain of two; orders are chosen by `measures`."""
        return None

    def cuts(self) -> list[Cuts]:
        """Slices are written anew by the share of rows that nobody wants, nothing is planned."""
        return []
