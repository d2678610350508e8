"""Accuracy of the results of a temporal query after load shedding has dropped tuples (L9-L13).

A temporal query merges tuples with equal values and adjacent periods. Such a sequence of tuples is a *run* of
equal values, and each run becomes one result row, with the interval of the run. Without load shedding the
result is *exact*. After load shedding, the approximate result has only *fragments* of each run: disjoint
parts of its interval. Fragments are compared with the run that they originate from, so a value that occurs in
two runs counts twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from slicemill.codec.registry import stored_as
from slicemill.shedding.memory import Tuple, Values
from slicemill.shedding.methods import splitmix64

Interval: TypeAlias = tuple[int, int]


class Preference(StrEnum):
    """Relation of two intervals: disjoint, overlapping or nested (L12).

    The relations are those of a PQI interval order, a preference structure of decision theory.

    Intervals with an equal begin or end are nested.
    """

    STRICT = "P"  # the intervals are disjoint
    WEAK = "Q"  # the intervals overlap partially
    INDIFFERENT = "I"  # one interval contains the other


def preference(x: Interval, y: Interval) -> Preference:
    """Return the relation of two intervals: disjoint, overlapping or nested (L12).

    >>> [str(preference((0, 4), y)) for y in ((2, 6), (1, 3), (4, 9))]
    ['Q', 'I', 'P']
    """
    if x[0] >= y[1] or y[0] >= x[1]:
        return Preference.STRICT
    if (x[0] <= y[0] and y[1] <= x[1]) or (y[0] <= x[0] and x[1] <= y[1]):
        return Preference.INDIFFERENT
    return Preference.WEAK


def similarity(x: Interval, y: Interval) -> Fraction:
    """Return the length of two intervals' intersection, divided by the length of their hull."""
    return Fraction(max(0, min(x[1], y[1]) - max(x[0], y[0])), max(x[1], y[1]) - min(x[0], y[0]))


def jaccard(fragments: Sequence[int]) -> Fraction:
    """Return the Jaccard similarity of exact and approximate result values, without intervals (L11).

    `fragments` has, for each exact result row, the number of result rows that load shedding left of it.
    """
    union = sum(max(1, count) for count in fragments)
    return Fraction(sum(min(1, count) for count in fragments), union) if union else Fraction(1)


def covered_share(exact: Interval, fragments: Sequence[Interval]) -> Fraction:
    """Return the share of an exact interval that its remaining parts cover (L12).

    The remaining parts (fragments) lie inside the exact interval.
    """
    return Fraction(_length(fragments), _length([exact]))


class AccuracySums(NamedTuple):
    """Numerator and denominator of the accuracy of results after load shedding (L13).

    The numerator is the sum of the remaining shares of each exact interval. The denominator is the number of
    results.
    """

    shares: float
    results: int


def accuracy_sums(
    exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]
) -> AccuracySums:
    """Return numerator and denominator of the accuracy of one output, to be summed over many outputs."""
    shares = sum(_length(approximate.get(run, ())) / _length([one]) for run, one in exact.items())
    return AccuracySums(float(shares), _results(exact, approximate))


def _results(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> int:
    """Return the denominator of the accuracy: the number of exact and approximate results.

    A fragment of a run counts even if the run is not in the exact result, because a condition may hold for
    the fragment and not for the run.
    """
    wrong = sum(len(fragments) for run, fragments in approximate.items() if run not in exact)
    return wrong + sum(max(1, len(approximate.get(run, ()))) for run in exact)


def _length(intervals: Sequence[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def accuracy(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> Fraction:
    """Return the accuracy of result values and intervals after load shedding, from 0 to 1 (L13).

    Both arguments have intervals by run number. A run is a sequence of adjacent tuples with equal values.

    >>> accuracy({1: (0, 4), 2: (4, 13)}, {1: [(0, 4)], 2: [(4, 7), (10, 13)]})
    Fraction(5, 9)
    """
    shares = sum(covered_share(one, approximate.get(run, ())) for run, one in exact.items())
    results = _results(exact, approximate)
    return Fraction(shares, results) if results else Fraction(1)


# Sample of exact runs of equal values, with which results after load shedding are compared (L25).
#
# The begin and end of each run are recorded before any of its tuples is dropped, and remain recorded when all
# its tuples are dropped. The accuracy of the remaining tuples is computed from them. This accuracy is exact,
# except for the oldest run of a partition if the first tuple in the window was dropped. If there are many
# runs, only a sample is recorded, selected by run number, and the reported accuracy is that of the sample.


LIMIT = 1024
_LEAST = 64
ORIGINAL_BYTES = 400  # estimated number of bytes of an `OriginalRun`
SEED = 0x5AD0


def run_sample_size(capacity: int) -> int:
    """Return the number of exact runs to sample for a budget of `capacity` tuples.

    >>> [run_sample_size(capacity) for capacity in (10, 2_500, 100_000)]
    [64, 312, 1024]
    """
    return min(LIMIT, max(_LEAST, capacity // 8))


@stored_as("shed.original", version=1)
@dataclass(slots=True)
class OriginalRun:
    """Run of equal values as it was before load shedding.

    `last_begin` and `last_number` are the begin and the arrival number of the last tuple of the run.
    `lost_begin` is the begin of the latest dropped tuple of the run.
    """

    values: Values
    begin: int
    end: int
    last_begin: int
    first_number: int
    last_number: int
    lost_begin: int = -(2**63)


@stored_as("shed.shadow", version=1)
@dataclass(slots=True)
class RunSample:
    """Sample of runs of equal values before load shedding, by partition.

    Whenever there are more than `limit` runs, a pseudo-random half of them is dropped.
    """

    limit: int = LIMIT
    halvings: int = 0
    _count: int = 0
    _partitions: dict[Hashable, dict[int, OriginalRun]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self._count

    def add_tuple(self, tuple_: Tuple, partition: Hashable) -> None:
        """Add a tuple whose period has ended to the sampled runs.

        The tuple extends its run of equal values, or begins a new run.
        """
        runs = self._partitions.setdefault(partition, {})
        known = runs.get(tuple_.run)
        if known is not None:
            known.end, known.last_begin, known.last_number = tuple_.end, tuple_.begin, tuple_.number
        elif self.samples(tuple_.run):
            begin, number = tuple_.begin, tuple_.number
            runs[tuple_.run] = OriginalRun(tuple_.values, begin, tuple_.end, begin, number, number)
            self._count += 1
            while self._count > self.limit:
                self.halvings += 1
                self._keep(lambda _, run, __: self.samples(run))

    def lost(self, dropped: Tuple, partition: Hashable) -> None:
        known = self.runs(partition).get(dropped.run)
        if known is not None:
            last = dropped.begin if dropped.count == 1 else dropped.end - 1
            known.lost_begin = max(known.lost_begin, last)

    def expire(self, passed: Callable[[Hashable, OriginalRun], bool]) -> None:
        """Remove the sampled runs for which `passed` returns True, because they have left the window."""
        self._keep(lambda partition, _, original: not passed(partition, original))
        if not self._count:
            self.halvings = 0

    def runs(self, partition: Hashable) -> Mapping[int, OriginalRun]:
        return self._partitions.get(partition, {})

    @property
    def share(self) -> float:
        """Return the share of all runs of equal values that are in the sample."""
        return 0.5**self.halvings

    def samples(self, run: int) -> bool:
        """Return True if the run of equal values with a given number belongs to the sample."""
        return not self.halvings or splitmix64(run, SEED) & ((1 << self.halvings) - 1) == 0

    def _keep(self, wanted: Callable[[Hashable, int, OriginalRun], bool]) -> None:
        kept = {
            partition: {run: one for run, one in runs.items() if wanted(partition, run, one)}
            for partition, runs in self._partitions.items()
        }
        self._partitions = {partition: runs for partition, runs in kept.items() if runs}
        self._count = sum(map(len, self._partitions.values()))


# Report of load shedding: dropped tuples, and accuracy over time (L25).


BUCKETS = 64
SLIDES = 128


@stored_as("shed.bucket", version=1)
@dataclass(slots=True)
class Bucket:
    """Accuracy of the outputs in one interval of time, as numerator and denominator."""

    begin: int
    end: int
    shares: float
    results: int

    @property
    def accuracy(self) -> float:
        return self.shares / self.results if self.results else 1.0


@stored_as("shed.report", version=1)
@dataclass(slots=True)
class AccuracyReport:
    """Report of load shedding: number of arrived and dropped tuples, and accuracy by time bucket.

    Adjacent buckets are merged, so that their number is limited.
    """

    arrived: int = 0
    dropped: int = 0
    buckets: list[Bucket] = field(default_factory=list)

    def add(self, ts: int, sums: AccuracySums) -> None:
        self.buckets = _thin_buckets([*self.buckets, Bucket(ts, ts, *sums)])

    @property
    def accuracy(self) -> float:
        """Return the accuracy over all outputs, or 1 before the first output."""
        whole = Bucket(0, 0, sum(b.shares for b in self.buckets), sum(b.results for b in self.buckets))
        return whole.accuracy

    def plain(self) -> dict[str, object]:
        """Return the report as plain values for JSON."""
        return {
            "arrived": self.arrived,
            "dropped": self.dropped,
            "accuracy": round(self.accuracy, 4),
            "buckets": [[b.begin, b.end, round(b.accuracy, 4)] for b in self.buckets],
        }


@stored_as("shed.memory_report", version=1)
@dataclass(slots=True)
class MemoryReport(AccuracyReport):
    """Report of load shedding in a temporal query with a memory budget.

    `dropped` counts tuples that were dropped before they left the window. `runs` is the number of runs of
    equal values among all tuples. `capacity` is the maximum number of stored tuples, and `in_window` the
    number of tuples in the latest window. `sampled` is the share of runs for which accuracy is measured.
    """

    capacity: int = 0
    runs: int = 0
    in_window: int = 0
    sampled: float = 1.0

    @property
    def coalescing(self) -> float:
        """Return the share of tuples that coalescing merges with their predecessor."""
        return 1 - self.runs / self.arrived if self.arrived else 0.0

    @property
    def memory_ratio(self) -> float:
        """Return the budget in tuples, divided by the number of tuples in the latest window."""
        return self.capacity / self.in_window if self.in_window else 1.0

    def plain(self) -> dict[str, object]:
        # super() does not work here, because it refers to the class before slots=True replaces it.
        return AccuracyReport.plain(self) | {
            "memory_ratio": round(self.memory_ratio, 4),
            "coalescing": round(self.coalescing, 4),
            "sampled": self.sampled,
        }


def merge_reports(reports: Sequence[AccuracyReport]) -> AccuracyReport:
    """Merge the reports of all subtasks or inputs of a query."""
    if len(reports) == 1:
        return reports[0]
    buckets = sorted((bucket for report in reports for bucket in report.buckets), key=lambda b: b.begin)
    arrived, dropped = (sum(found) for found in zip(*((r.arrived, r.dropped) for r in reports), strict=True))
    return AccuracyReport(arrived, dropped, _thin_buckets(buckets))


def thin_slides(until: deque[tuple[int, int]]) -> None:
    """Drop every second entry of a long list of window slides, but keep the newest entry."""
    if len(until) > SLIDES:
        newest = until[-1]
        kept = [*until][::2]
        until.clear()
        until.extend(kept if kept[-1] == newest else [*kept, newest])


def _thin_buckets(buckets: list[Bucket]) -> list[Bucket]:
    while len(buckets) > BUCKETS:
        pairs = zip(buckets[::2], [*buckets[1::2], None], strict=False)
        buckets = [left if right is None else _merge_buckets(left, right) for left, right in pairs]
    return buckets


def _merge_buckets(left: Bucket, right: Bucket) -> Bucket:
    return Bucket(
        left.begin, max(left.end, right.end), left.shares + right.shares, left.results + right.results
    )
