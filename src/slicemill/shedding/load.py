"""Load shedding: choice of the tuples (rows) that a query with a load budget drops under load.

A drop operator is placed between a stream and a query. The functions `keep_random`, `keep_useful` and
`keep_windows` return a mask of the tuples of a micro-batch to keep. Random decisions depend on the timestamp
and arrival number of a tuple, so the same tuples are kept for any number of partitions and batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from slicemill.catalog.queries import LoadBudget
from slicemill.kernels.arrays import Bools, Int64s


@dataclass(frozen=True, slots=True)
class SheddingDecision:
    """Shedding decision for one micro-batch: share of tuples to keep, or windows to skip.

    For a join, `share` is the share of comparisons to make. `reach` is the share of each window that is
    searched, beginning with the newest rows.
    """

    share: float = 1.0
    skipped: tuple[tuple[int, int], ...] = ()
    reach: float = 1.0


NOTHING = SheddingDecision()


def keep_random(times: Int64s, seqs: Int64s, share: float) -> Bools:
    """Return a mask of the tuples to keep. Each tuple is kept with probability `share`."""
    return _chances(times, seqs) < share


def keep_useful(times: Int64s, seqs: Int64s, utility: npt.NDArray[np.float64], share: float) -> Bools:
    """Return a mask of the share `share` of tuples with the highest utility.

    The choice among tuples with equal utility is random. Tuples without a utility (NaN) are dropped first.
    """
    count = math.ceil(share * len(times))
    order = np.lexsort((_chances(times, seqs), -np.nan_to_num(utility, nan=-np.inf)))
    kept = np.zeros(len(times), np.bool_)
    kept[order[:count]] = True
    return kept


def keep_windows(times: Int64s, range_us: int, skipped: tuple[tuple[int, int], ...]) -> Bools:
    """Return a mask of the tuples that belong to at least one window that is not skipped.

    Windows [end - range, end) with an end in one of the spans (first, last] are skipped. A tuple is dropped
    if all its windows are skipped.

    >>> keep_windows(np.array([9, 10, 15, 20, 21]), 10, ((10, 30),)).tolist()
    [True, False, False, False, True]
    """
    kept = np.ones(len(times), np.bool_)
    for first, last in skipped:
        kept &= (times < first) | (times + range_us > last)
    return kept


def in_whole_windows(ends: Int64s, skipped: tuple[tuple[int, int], ...]) -> Bools:
    """Return a mask of the results whose windows are complete, because the windows were not skipped.

    `ends` are the ends of the results' windows.

    >>> in_whole_windows(np.array([10, 11, 30, 31]), ((10, 30),)).tolist()
    [True, False, False, True]
    """
    whole = np.ones(len(ends), np.bool_)
    for first, last in skipped:
        whole &= (ends <= first) | (ends > last)
    return whole


def _chances(times: Int64s, seqs: Int64s) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each tuple (splitmix64)."""
    bits = times.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits += seqs.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


# Overload detector: determines the share of tuples that can be processed in time.
#
# Before each micro-batch of a query's task, the pending work of the machine is added up. Queries without a
# budget process all tuples. The remaining time of the permitted lag is divided among queries with a budget,
# by weight. Under constant overload, one micro-batch of each task takes half of the lag in total. Tuples wait
# during these micro-batches and are processed in the next.
#
# The share of processed tuples drops at once and rises in steps of 0.1. A share close to 1 is set to 1, so
# that it does not oscillate at the limit.


# Target delay of tuples as a share of the permitted lag; the rest is a reserve for slow micro-batches.
_AIM = 0.8
_RISE = 0.1
_NEARLY_ALL = 0.95
# Minimum time for one micro-batch of each task, as a share of the permitted lag.
# If there were no minimum, a query with a large backlog would drop all tuples.
_AT_LEAST = 0.1
_PERIOD = 8


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pending work of the machine, in seconds of processing.

    `certain_s` is the work that shedding cannot drop. `weighted_s` is the work that shedding can drop: the
    sum of each task's time multiplied by its weight.
    """

    certain_s: float
    weighted_s: float


@dataclass(frozen=True, slots=True)
class WaitingLoad:
    """Pending input of a task's next micro-batch, and the current state size."""

    waited_s: float
    rows: int
    state_bytes: int
    bytes_per_row: float
    backlog: Backlog


@dataclass(slots=True)
class ShareController:
    """Controller of the share of tuples that the queries with one load budget process.

    `weight` determines the part of the available time that these queries get.
    """

    budget: LoadBudget
    weight: float = 1.0
    share: float = 1.0

    def decide(self, waiting: WaitingLoad) -> float:
        """Return the share of the pending tuples to process now."""
        afforded = 1.0
        if self.budget.lag_us is not None:
            afforded = self._in_time(waiting, self.budget.lag_us / 1_000_000)
        if self.budget.memory is not None and waiting.bytes_per_row > 0 and waiting.rows:
            room = max(0, self.budget.memory - waiting.state_bytes)
            afforded = min(afforded, room / (waiting.bytes_per_row * waiting.rows))
        return max(self.budget.least, min(1.0, afforded))

    def _in_time(self, waiting: WaitingLoad, lag_s: float) -> float:
        backlog = waiting.backlog
        allowed_s = max(_AIM * lag_s - waiting.waited_s - backlog.certain_s, _AT_LEAST * lag_s)
        share = self.weight * allowed_s / backlog.weighted_s if backlog.weighted_s > 0 else 1.0
        self.share = min(1.0 if share > _NEARLY_ALL else share, self.share + _RISE, 1.0)
        return self.share


@dataclass(slots=True)
class WindowSkipper:
    """Planner of the windows that a query skips, so that only a given share of the work is done.

    Windows are skipped in spans. A span (first, last] covers the windows whose end is in the span. Skipping a
    window saves only tuples that no other window needs, so a span must be long compared with the range. Its
    length is the skipped share of a period of eight ranges, plus one range.
    """

    range_us: int
    spans: tuple[tuple[int, int], ...] = ()
    next_us: int | None = None

    def plan(self, share: float, first_us: int) -> tuple[tuple[int, int], ...]:
        """Return the spans of skipped windows that contain tuples from `first_us` on.

        A new span is added when the period of the last span is over.
        """
        self.spans = tuple(span for span in self.spans if span[1] + self.range_us >= first_us)
        if share < 1 and (self.next_us is None or first_us >= self.next_us):
            period = _PERIOD * self.range_us
            length = min(period, round((1 - share) * period) + self.range_us)
            self.spans = (*self.spans, (first_us, first_us + length))
            self.next_us = first_us + period
        return self.spans


# Age statistics of join comparisons, for load shedding in joins (S54, S55).
#
# Under load, a join does not compare tuples that are far apart in time. To predict the savings, each searched
# slice of join state (rows of similar age) reports the number of comparisons and the age of its rows. The
# counts of all subtasks of a task are added up, so that decisions do not depend on the number of subtasks.


# Number of age buckets into which the longest window of a join input is divided.
PARTS = 16

_DECAY = 0.9
_STEPS = 30


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Number of join comparisons in one micro-batch, by input and age of the stored row.

    `parts` has the number of comparisons by age bucket, the youngest first. `oldest` is the bucket of the
    oldest searched rows, or -1 if no row was searched.
    """

    parts: tuple[tuple[int, ...], ...]
    oldest: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(map(sum, self.parts))


class ComparisonCounter:
    """Counter of the join comparisons in one micro-batch.

    The counter uses Python numbers, because micro-batches may be small.
    """

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self.begin_anew()

    def begin_anew(self) -> None:
        self._counts = [[0.0] * PARTS for _ in range(self._inputs)]
        self._oldest = [-1] * self._inputs

    def add(self, side: int, youngest: float, oldest: float, count: int) -> None:
        """Count comparisons with the rows of a slice of join state.

        Ages are shares of the input's longest window. Rows are assumed to be evenly distributed between
        the two ages.
        """
        low, high = (PARTS * min(max(age, 0.0), 1.0) for age in (youngest, oldest))
        first, last = min(int(low), PARTS - 1), min(int(high), PARTS - 1)
        counts = self._counts[side]
        self._oldest[side] = max(self._oldest[side], last)
        if first >= last:
            counts[first] += count
            return
        each = count / (high - low)
        counts[first] += each * (first + 1 - low)
        for part in range(first + 1, last):
            counts[part] += each
        counts[last] += each * (high - last)

    def found(self) -> Comparisons:
        parts = []
        for counts in self._counts:
            # Cumulative counts are rounded instead of single counts, so that the sum is preserved.
            upto = [round(so_far) for so_far in accumulate(counts)]
            parts.append(tuple(after - before for before, after in pairwise((0, *upto))))
        return Comparisons(tuple(parts), tuple(self._oldest))


class ComparisonsByAge:
    """Average number of join comparisons per arriving row, by join input and age of the stored rows."""

    def __init__(self, inputs: int = 2) -> None:
        self._parts = np.zeros((inputs, PARTS))
        self._known = np.zeros((inputs, PARTS), np.bool_)

    @property
    def parts(self) -> NDArray[np.float64]:
        """Return the average number of comparisons for each input and age bucket.

        A bucket without measurements gets the mean of the other buckets of its input.
        """
        known = self._known.sum(axis=1)
        means = np.where(self._known, self._parts, 0.0).sum(axis=1) / np.maximum(known, 1)
        return np.where(self._known, self._parts, means[:, None])

    def add(self, subtasks: Sequence[Comparisons], rows: int, searched: float = 1.0) -> None:
        """Add the counts of all subtasks in a micro-batch of `rows` rows to the averages.

        `searched` is the share of each window that was searched. The averages of buckets with older rows stay
        unchanged.
        """
        if not rows or not subtasks:
            return
        oldest = np.max([subtask.oldest for subtask in subtasks], axis=0)
        ends = np.arange(1, PARTS + 1) / PARTS
        seen = (np.arange(PARTS) <= oldest[:, None]) & (ends <= searched + 1e-9)
        now = np.sum([np.array(subtask.parts, np.float64) for subtask in subtasks], axis=0) / rows
        weight = np.where(self._known, 1 - _DECAY, 1.0)
        self._parts = np.where(seen, (1 - weight) * self._parts + weight * now, self._parts)
        self._known |= seen

    def within(self, windows: Sequence[float], share: float) -> float:
        """Return the average number of comparisons per row if joins search only the newest stored rows.

        Joins search the newest `share` of each window. `windows` are the window lengths of the inputs, as
        shares of the longest window.
        """
        return sum(
            float(np.interp(window * share * PARTS, np.arange(PARTS + 1), np.append(0.0, np.cumsum(side))))
            for window, side in zip(windows, self.parts, strict=True)
        )

    def reach(self, windows: Sequence[float], share: float) -> float:
        """Return the share of each window to search, so that `share` of the work is done.

        Work is measured in comparisons, and the newest rows are searched first. If nothing has been measured,
        matches of all ages are assumed to be equally likely.
        """
        whole = self.within(windows, 1.0)
        if share >= 1.0 or whole <= 0.0:
            return min(share, 1.0)
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.within(windows, middle) < share * whole else (low, middle)
        return high
