"""State of multi-way joins: query bits, one state per stream, statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from slicemill.operators.join.inspection import Cuts, SliceContent
from slicemill.operators.join.slices.statistics import Statistics
from slicemill.operators.join.state import SideState
from slicemill.operators.join.windows import QueryBits
from slicemill.operators.multijoin.measures import MultiJoinMeasures
from slicemill.shedding.report import Report
from slicemill.storage.codec import stored_as


@stored_as("multijoin", version=2, upgrade={1: lambda plain: {"late": {}, "sheds": {}, **plain}})
@dataclass(slots=True)
class MultiJoinState:
    seats: QueryBits = field(default_factory=lambda: QueryBits({}, {}))
    sides: dict[str, SideState] = field(default_factory=dict)  # by input
    # Stored rows that have yet to probe for some queries, by line (`lines`) and input.
    late: dict[str, dict[str, SideState]] = field(default_factory=dict)
    measures: MultiJoinMeasures = field(default_factory=MultiJoinMeasures)
    sheds: dict[str, Report] = field(default_factory=dict)  # by query with load shedding

    def held(self) -> list[SliceContent]:
        """List the slices of each stream, oldest first, and the waiting rows."""
        held = sorted(self.sides.items())
        held += [(name, side) for line in self.late.values() for name, side in sorted(line.items())]
        return [
            SliceContent(
                f"{name.removeprefix('log ')}{part.part}",
                part.slice, part.rows, part.earliest, part.latest, part.wanted,
            )
            for name, side in held
            for part in side.held()
        ]  # fmt: skip

    def statistics(self) -> Statistics | None:
        """Return the measurements by input; None without measurements."""
        measures = self.measures
        shares = [
            found.met / (found.probes * held)
            for name, found in measures.probes.items()
            if "=" in name and found.probes and (held := self._held(name)) > 0
        ]
        if not shares or measures.elapsed_s <= 0:
            return None
        rates = tuple(measures.rows.get(name, 0) / measures.elapsed_s for name in self.sides)
        return Statistics(rates, sum(shares) / len(shares), measured=True)

    def _held(self, probe: str) -> int:
        """Return the number of stored rows of the input that a probe reads."""
        side = list(self.sides.values())[int(probe.split(":")[0])]
        return sum(stored.rows for stored in side.slices)

    def cuts(self) -> list[Cuts]:
        """Return no cuts: slices are rewritten by their share of unreachable rows."""
        return []
