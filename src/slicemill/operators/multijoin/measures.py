"""Statistics of streams and probes, used to choose probing orders (S52).

Every cell measures and plans for itself, and keeps the statistics in its state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slicemill.operators.join.measures import MeasuredStage
from slicemill.storage.codec import stored_as

_ENOUGH = 4_096  # probes needed before a measurement is used
_PLANNED_AFTER = 20_000  # rows of all streams


@stored_as("multijoin.probes", version=1)
@dataclass(slots=True)
class ProbeMeasures:
    """Counts of a probe: partial results, candidates, and remaining results.

    Candidates have the same key, and an age and a mask that match.
    """

    probes: float = 0.0
    met: float = 0.0
    kept: float = 0.0

    @property
    def expected(self) -> float | None:
        """Mean results per partial result; None with few measurements."""
        return self.kept / self.probes if self.probes >= _ENOUGH else None


@stored_as("multijoin.measures", version=1)
@dataclass(slots=True)
class MultiJoinMeasures:
    """Rows by input, and statistics by probe; `since` counts rows since planning."""

    rows: dict[str, int] = field(default_factory=dict)
    probes: dict[str, ProbeMeasures] = field(default_factory=dict)
    first_us: int | None = None
    reached_us: int = 0
    since: int = 0
    writing: MeasuredStage = field(default_factory=MeasuredStage)

    def arrived(self, input_: str, rows: int, first_us: int) -> None:
        self.rows[input_] = self.rows.get(input_, 0) + rows
        self.since += rows
        self.first_us = first_us if self.first_us is None else min(first_us, self.first_us)

    def probed(self, name: str, probes: int, met: int, kept: int) -> None:
        found = self.probes.setdefault(name, ProbeMeasures())
        found.probes += probes
        found.met += met
        found.kept += kept

    def is_due(self) -> bool:
        """Return True if orders should be planned again, and halve older counts."""
        if self.since < _PLANNED_AFTER:
            return False
        self.since = 0
        for found in self.probes.values():
            found.probes, found.met, found.kept = (n / 2 for n in (found.probes, found.met, found.kept))
        return True

    def begin_anew(self) -> None:
        """Reset all statistics, since other queries select other rows by other keys."""
        self.rows, self.probes, self.first_us, self.since = {}, {}, None, 0

    @property
    def elapsed_s(self) -> float:
        return (self.reached_us - (self.first_us or 0)) / 1_000_000
