"""Report of load shedding: dropped tuples, and accuracy over time (L25)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from slicemill.shedding.accuracy import AccuracySums
from slicemill.storage.codec import stored_as

BUCKETS = 64
SLIDES = 128


@stored_as("shed.bucket", version=1)
@dataclass(slots=True)
class Bucket:
    """Time span, from its first to its last output."""

    begin: int
    end: int
    shares: float
    results: int

    @property
    def accuracy(self) -> float:
        return self.shares / self.results if self.results else 1.0


@stored_as("shed.report", version=1)
@dataclass(slots=True)
class Report:
    """Number of arrived and dropped tuples, and accuracy by time bucket.

    The number of buckets is limited: neighbours are merged.
    """

    arrived: int = 0
    dropped: int = 0
    buckets: list[Bucket] = field(default_factory=list)

    def add(self, ts: int, sums: AccuracySums) -> None:
        self.buckets = _few([*self.buckets, Bucket(ts, ts, *sums)])

    @property
    def accuracy(self) -> float:
        """Return the accuracy over all outputs, 1 before the first."""
        whole = Bucket(0, 0, sum(b.shares for b in self.buckets), sum(b.results for b in self.buckets))
        return whole.accuracy

    def plain(self) -> dict[str, object]:
        """Return a form for JSON."""
        return {
            "arrived": self.arrived,
            "dropped": self.dropped,
            "accuracy": round(self.accuracy, 4),
            "buckets": [[b.begin, b.end, round(b.accuracy, 4)] for b in self.buckets],
        }


@stored_as("shed.memory_report", version=1)
@dataclass(slots=True)
class MemoryReport(Report):
    """Report of a temporal query with a memory budget.

    `dropped` counts tuples dropped before they left the window. `runs` is the number of runs of all
    tuples. `capacity` is the memory size, and `in_window` the number of tuples in the latest window.
    `sampled` is the share of runs for which accuracy is measured.
    """

    capacity: int = 0
    runs: int = 0
    in_window: int = 0
    sampled: float = 1.0

    @property
    def coalescing(self) -> float:
        """Return the measured share of tuples that continue the run of their predecessor."""
        return 1 - self.runs / self.arrived if self.arrived else 0.0

    @property
    def memory_ratio(self) -> float:
        """Return the memory capacity per tuple of the latest window."""
        return self.capacity / self.in_window if self.in_window else 1.0

    def plain(self) -> dict[str, object]:
        # super() does not work here: slots=True creates a new class, but super() refers to the old one.
        return Report.plain(self) | {
            "memory_ratio": round(self.memory_ratio, 4),
            "coalescing": round(self.coalescing, 4),
            "sampled": self.sampled,
        }


def merged(reports: Sequence[Report]) -> Report:
    """Merge the reports of all cells or inputs of a query."""
    if len(reports) == 1:
        return reports[0]
    buckets = sorted((bucket for report in reports for bucket in report.buckets), key=lambda b: b.begin)
    arrived, dropped = (sum(found) for found in zip(*((r.arrived, r.dropped) for r in reports), strict=True))
    return Report(arrived, dropped, _few(buckets))


def few_slides(until: deque[tuple[int, int]]) -> None:
    """Drop every second slide if there are too many."""
    if len(until) > SLIDES:
        newest = until[-1]
        kept = [*until][::2]
        until.clear()
        until.extend(kept if kept[-1] == newest else [*kept, newest])


def _few(buckets: list[Bucket]) -> list[Bucket]:
    while len(buckets) > BUCKETS:
        pairs = zip(buckets[::2], [*buckets[1::2], None], strict=False)
        buckets = [left if right is None else _joined(left, right) for left, right in pairs]
    return buckets


def _joined(left: Bucket, right: Bucket) -> Bucket:
    return Bucket(
        left.begin, max(left.end, right.end), left.shares + right.shares, left.results + right.results
    )
