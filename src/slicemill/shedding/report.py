"""What shedding has cost a query so far: tuples dropped, and the accuracy of its results over time (L25)."""

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
    """A stretch of time, from the first to the last report in it."""

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
    """Of `arrived` tuples `dropped` were dropped.

    There are at most so many buckets: of more, two neighbours become one.
    """

    arrived: int = 0
    dropped: int = 0
    buckets: list[Bucket] = field(default_factory=list)

    def add(self, ts: int, sums: AccuracySums) -> None:
        self.buckets = _few([*self.buckets, Bucket(ts, ts, *sums)])

    @property
    def accuracy(self) -> float:
        """Over all reports; 1 while there is none."""
        whole = Bucket(0, 0, sum(b.shares for b in self.buckets), sum(b.results for b in self.buckets))
        return whole.accuracy

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "arrived": self.arrived,
            "dropped": self.dropped,
            "accuracy": round(self.accuracy, 4),
            "buckets": [[b.begin, b.end, round(b.accuracy, 4)] for b in self.buckets],
        }


@stored_as("shed.memory_report", version=1)
@dataclass(slots=True)
class MemoryReport(Report):
    """Of a temporal query, whose tuples in `runs` runs were dropped before the window had passed them.

    `capacity` is what memory holds, `in_window` what the latest window wanted. `sampled` is the share of runs
    that accuracy is known of.
    """

    capacity: int = 0
    runs: int = 0
    in_window: int = 0
    sampled: float = 1.0

    @property
    def coalescing(self) -> float:
        """The measured share of tuples that go on with the run of the one before."""
        return 1 - self.runs / self.arrived if self.arrived else 0.0

    @property
    def memory_ratio(self) -> float:
        """Memory for each tuple that the latest window wanted."""
        return self.capacity / self.in_window if self.in_window else 1.0

    def plain(self) -> dict[str, object]:
        # Not super(): a class with slots is made anew, and the name in its cell is that of the old one.
        return Report.plain(self) | {
            "memory_ratio": round(self.memory_ratio, 4),
            "coalescing": round(self.coalescing, 4),
            "sampled": self.sampled,
        }


def merged(reports: Sequence[Report]) -> Report:
    """The reports of all cells, or of all inputs, of a query as one."""
    if len(reports) == 1:
        return reports[0]
    buckets = sorted((bucket for report in reports for bucket in report.buckets), key=lambda b: b.begin)
    arrived, dropped = (sum(found) for found in zip(*((r.arrived, r.dropped) for r in reports), strict=True))
    return Report(arrived, dropped, _few(buckets))


def few_slides(until: deque[tuple[int, int]]) -> None:
    """Of many slides, every second one is remembered."""
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
