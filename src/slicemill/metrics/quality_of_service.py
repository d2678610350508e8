"""Quality of service: response time, slowdown, tardiness, staleness, queues (P6-P9, P22, P24, P29-P31).

Accumulators can be merged in any order. So accumulators can be collected by query, class and time bucket, in
several processes, and combined. A metric without data is NaN, not 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats, Int64s
from slicemill.time import SECOND_US

# Maximum number of stored time spans in which no result was missing.
# The staleness of a result that was due before the oldest span counts from the end of that span.
_STRETCHES_KEPT = 1_000


class IdealTime(NamedTuple):
    """Response time of a result if there were no other load, and the part for the last input row.

    Times are in seconds. `last_s` is the time of the last row on its longest path, if the rows with which it
    joins have already arrived.
    """

    whole_s: float
    last_s: float


@dataclass(slots=True)
class Summary:
    """Summary of values: their count, sum, sum of squares, and maximum."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: float = math.nan

    def add(self, values: npt.ArrayLike, times: npt.ArrayLike = 1) -> None:
        """Add values to the summary. Each value occurs `times` times."""
        given, often = np.asarray(values, np.float64).ravel(), np.asarray(times, np.float64)
        if len(given):
            all_of_them = given * often
            count = int(often.sum() if often.ndim else often * len(given))
            total, squares = float(all_of_them.sum()), float(all_of_them @ given)
            self.merge(Summary(count, total, squares, float(given.max())))

    def merge(self, other: Summary) -> None:
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        if math.isnan(self.largest) or other.largest > self.largest:
            self.largest = other.largest

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    @property
    def l2(self) -> float:
        """Return the ℓ2 norm (root of the sum of squares) of the values.

        The norm is a sum, so it increases with the number of values (P9).
        """
        return math.sqrt(self.squares) if self.count else math.nan

    @property
    def root_mean_square(self) -> float:
        """Return the root mean square of the values.

        Unlike the ℓ2 norm, it does not increase with the number of values.
        """
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass(slots=True)
class StaleTime:
    """Time during which an output stream lacked a due result (P30).

    A result is due when the tuple that causes it has arrived. Results may be emitted in another order than
    their causes arrive, for example by a union whose inputs lag behind each other. So earlier time spans
    in which no result was missing are stored.
    """

    stale: float = 0.0
    covered_until: float = -math.inf
    # Earlier time spans in which no result was missing.
    _fresh: list[tuple[float, float]] = field(default_factory=list)

    def add(self, arrival: float, departure: float) -> list[tuple[float, float]]:
        """Add a result with its arrival and departure times.

        Return the time spans in which no other result was missing.
        """
        found: list[tuple[float, float]] = []
        behind: list[tuple[float, float]] = []
        while self._fresh and self._fresh[-1][1] > arrival:
            begin, end = self._fresh.pop()
            if end > departure:
                behind.append((max(begin, departure), end))
            if begin < arrival:
                self._fresh.append((begin, arrival))
            if max(begin, arrival) < min(end, departure):
                found.append((max(begin, arrival), min(end, departure)))
        self._fresh += reversed(behind)
        if departure > self.covered_until:
            if self.covered_until < arrival:
                self._fresh.append((self.covered_until, arrival))
                del self._fresh[:-_STRETCHES_KEPT]
            found.append((max(arrival, self.covered_until), departure))
            self.covered_until = departure
        self.stale += sum(end - begin for begin, end in found)
        return found

    def add_batch(self, arrivals: npt.ArrayLike, departure: float) -> list[tuple[float, float]]:
        """Add results that were emitted together. All of them count from the oldest arrival."""
        return self.add(float(np.min(arrivals)), departure)

    def staleness(self, duration: float) -> float:
        return self.stale / duration if duration > 0 else math.nan


def staleness(intervals: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return the share of the time span [begin, end) that the intervals cover (P30)."""
    covered = StaleTime(covered_until=begin)
    for arrival, departure in sorted(intervals):
        covered.add(min(arrival, end), min(departure, end))
    return covered.staleness(end - begin)


def freshness(stalenesses: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the mean freshness of several output streams (P31), possibly weighted."""
    if not stalenesses:
        return math.nan
    return 1.0 - float(np.average(stalenesses, weights=weights))


def tardiness(completion: npt.ArrayLike, deadline: npt.ArrayLike) -> Floats:
    """Return the time by which each result exceeds its deadline, or 0 (P24)."""
    return np.maximum(0.0, np.asarray(completion, np.float64) - np.asarray(deadline, np.float64))


def stretches(begin: float, end: float, width: float) -> Iterator[tuple[int, float]]:
    """Yield each time bucket between two times, with the length of its part between these times."""
    number = math.floor(begin / width)
    while begin < end:
        border = min(end, (number + 1) * width)
        if border > begin:
            yield number, border - begin
            begin = border
        number += 1


def time_by_bucket(begins: Floats, ends: Floats, width: float) -> dict[int, float]:
    """Map each time bucket to the sum of the parts of intervals that lie in the bucket."""
    if not len(begins):
        return {}
    if math.isinf(width):  # an infinite width means one bucket
        return {0: float((ends - begins).sum())}
    first, last = math.floor(begins.min() / width), math.ceil(ends.max() / width)
    edges = np.arange(first, last + 1) * width
    passed = _time_since(begins, edges) - _time_since(ends, edges)
    return {first + index: float(length) for index, length in enumerate(np.diff(passed)) if length > 0}


def _time_since(moments: Floats, edges: Floats) -> Floats:
    """Return, for each bucket edge, the sum of the times from all earlier moments to that edge."""
    moments = np.sort(moments)
    sums = np.concatenate(([0.0], np.cumsum(moments)))
    before = np.searchsorted(moments, edges)
    since: Floats = before * edges - sums[before]
    return since


@dataclass(slots=True)
class QueryStatistics:
    """Accumulators of the metrics of a query, or class of queries, in a time span.

    The caller divides `stale` and `waited` by the time during which the queries existed, which gives
    staleness and average memory.
    """

    response: Summary = field(default_factory=Summary)
    slowdown: Summary = field(default_factory=Summary)
    tardiness: Summary = field(default_factory=Summary)
    stale: float = 0.0
    """Time during which a due result was missing, summed over queries."""
    waited: float = 0.0
    """Total waiting time of tuples in queues."""
    most_waiting: float = 0.0
    """Maximum number of tuples in the queues of one query."""

    def add_emitted(
        self,
        arrivals: npt.ArrayLike,
        departures: npt.ArrayLike,
        ideal_time: float,
        times: npt.ArrayLike = 1,
        last_part: float | None = None,
    ) -> None:
        """Add the response times of emitted results. Each result occurs `times` times.

        Discarded tuples are not counted. For a result of several tuples, `last_part` is the part of the ideal
        time for the tuple that arrives last. The slowdown is then the delay divided by the work on all tuples
        (P22).
        """
        responses = np.asarray(departures, np.float64) - np.asarray(arrivals, np.float64)
        self.response.add(responses, times)
        if ideal_time > 0:
            alone = ideal_time if last_part is None else last_part
            self.slowdown.add(1.0 + (responses - alone) / ideal_time, times)

    def merge(self, other: QueryStatistics) -> None:
        self.response.merge(other.response)
        self.slowdown.merge(other.slowdown)
        self.tardiness.merge(other.tardiness)
        self.stale += other.stale
        self.waited += other.waited
        self.most_waiting = max(self.most_waiting, other.most_waiting)


@dataclass(slots=True)
class MetricsRecord:
    """Metrics of each query in each time bucket.

    `classes` maps each query to its class.
    """

    bucket: float
    classes: dict[str, str] = field(default_factory=dict)
    figures: dict[tuple[str, int], QueryStatistics] = field(default_factory=dict)
    kept_from: float = -math.inf
    """Number of the first bucket that is stored."""

    def at(self, query: str, time: float) -> QueryStatistics:
        return self.numbered(query, int(time // self.bucket))

    def numbered(self, query: str, number: int) -> QueryStatistics:
        found = self.figures.get((query, number))
        if found is None:
            found = self.figures[query, number] = QueryStatistics()
        return found

    def forget(self, number: int) -> None:
        """Drop the metrics of all time buckets before the given bucket number."""
        if number <= self.kept_from:
            return
        self.kept_from = number
        for key in [key for key in self.figures if key[1] < number]:
            del self.figures[key]

    def missing(self, query: str, begin: float, end: float) -> None:
        """Record a time span in which a result of a query was due but not emitted."""
        for number, length in stretches(begin, end, self.bucket):
            self.numbered(query, number).stale += length

    def merge(self, other: MetricsRecord) -> None:
        """Merge the metrics of other queries or time spans."""
        self.classes.update(other.classes)
        for key, figures in other.figures.items():
            self.figures.setdefault(key, QueryStatistics()).merge(figures)

    def of_query(self, query: str) -> QueryStatistics:
        return self._merged(figures for (name, _), figures in self.figures.items() if name == query)

    def of_class(self, name: str) -> QueryStatistics:
        return self._merged(
            figures for (query, _), figures in self.figures.items() if self.classes.get(query) == name
        )

    def of_bucket(self, number: int) -> QueryStatistics:
        return self._merged(figures for (_, bucket), figures in self.figures.items() if bucket == number)

    def overall(self) -> QueryStatistics:
        return self._merged(self.figures.values())

    @staticmethod
    def _merged(parts: Iterable[QueryStatistics]) -> QueryStatistics:
        whole = QueryStatistics()
        for part in parts:
            whole.merge(part)
        return whole


# Quantile sketch: counts of values in buckets of increasing width. Sketches can be merged.


_RATIO = 1.02
_LOG_RATIO = math.log(_RATIO)
_LEAST = 1e-6


@dataclass(slots=True)
class Quantiles:
    """Quantile sketch: approximate quantiles of any number of values.

    Each bucket is 2 % wider than the previous bucket, so quantiles are at most 1 % off. Values below 1e-6 (a
    microsecond, if values are seconds) count as 1e-6.
    """

    counts: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def add(self, values: npt.ArrayLike, times: npt.ArrayLike = 1) -> None:
        """Count values in the sketch. Each value occurs `times` times."""
        given = np.maximum(np.atleast_1d(np.asarray(values, np.float64)), _LEAST)
        ranges = np.floor(np.log(given) / _LOG_RATIO).astype(int)
        for index, often in zip(ranges.tolist(), np.broadcast_to(times, ranges.shape).tolist(), strict=True):
            self.counts[index] = self.counts.get(index, 0) + often

    def merge(self, other: Quantiles) -> None:
        for index, often in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + often

    def at(self, share: float) -> float:
        """Return a quantile of the values, or NaN if there are no values."""
        left = share * self.count
        for index in sorted(self.counts):
            left -= self.counts[index]
            if left <= 0:
                return math.exp((index + 0.5) * _LOG_RATIO)
        return math.nan


# Average number of rows that wait for a task, over all time and over recent time buckets (P29).


BUCKET_S = 10.0
BUCKETS_KEPT = 360

_BUCKET_US = BUCKET_S * SECOND_US

Positions = npt.NDArray[np.intp]


class WaitingRows:
    """Numbers of rows that wait for each task. A task is given by its position in the table of tasks.

    The number is sampled repeatedly. Between two samples, the earlier sample applies.
    """

    def __init__(self, count: int, now_us: int) -> None:
        self._since_us = np.full(count, now_us)
        self._counted_us = now_us
        self._row_us = np.zeros(count)
        self._most = np.zeros(count, np.int64)
        # Time bucket -> for each task, total waiting time of its rows in µs, and maximum number of rows.
        self._buckets: dict[int, tuple[npt.NDArray[np.float64], Int64s]] = {}

    def take_over(self, before: WaitingRows, positions: Mapping[int, int]) -> None:
        """Copy the history of tasks from the previous table, in which the tasks had other positions."""
        here, there = np.array(list(positions.items()), np.intp).reshape(-1, 2).T
        for name in ("_since_us", "_row_us", "_most"):
            getattr(self, name)[here] = getattr(before, name)[there]
        for number, (row_us, most) in before._buckets.items():
            for own, known in zip(self._bucket(number), (row_us, most), strict=True):
                own[here] = known[there]

    def passed(self, rows: Int64s, now_us: int) -> None:
        """Record that `rows` waiting rows of each task have waited since the last call."""
        self._add(slice(None), rows, self._counted_us, now_us)
        self._counted_us = now_us

    def came(self, positions: Positions, rows: int, at_us: int) -> None:
        """Record rows that arrived for some tasks at `at_us`, between two samples."""
        self._add(positions, rows, at_us, self._counted_us)

    def now(self, rows: Int64s) -> None:
        """Record the current number of waiting rows of each task, to find the maximum."""
        np.maximum(self._most, rows, out=self._most)
        most = self._bucket(int(self._counted_us // _BUCKET_US))[1]
        np.maximum(most, rows, out=most)

    def _add(self, where: slice | Positions, rows: Int64s | int, begin_us: int, end_us: int) -> None:
        if end_us <= begin_us:
            return
        self._row_us[where] += rows * (end_us - begin_us)
        # The clock may jump by years, but only BUCKETS_KEPT time buckets are stored.
        kept_us = max(begin_us, end_us - BUCKETS_KEPT * int(_BUCKET_US))
        for number, length_us in stretches(kept_us, end_us, _BUCKET_US):
            row_us, most = self._bucket(number)
            row_us[where] += rows * length_us
            most[where] = np.maximum(most[where], rows)

    def _bucket(self, number: int) -> tuple[npt.NDArray[np.float64], Int64s]:
        if number not in self._buckets:
            count = len(self._most)
            # A new dictionary is created, because other threads may be reading the old dictionary.
            kept = {known: self._buckets[known] for known in self._buckets if known > number - BUCKETS_KEPT}
            self._buckets = {**kept, number: (np.zeros(count), np.zeros(count, np.int64))}
        return self._buckets[number]

    def of(self, position: int) -> tuple[float, int]:
        """Return the average and maximum number of waiting rows of a task."""
        over_us = self._counted_us - int(self._since_us[position])
        mean = float(self._row_us[position]) / over_us if over_us > 0 else 0.0
        return mean, int(self._most[position])

    def by_bucket(self, position: int) -> list[tuple[int, float, int]]:
        """Return, for each time bucket, its number and the average and maximum of a task's waiting rows."""
        found = []
        for number, (row_us, most) in self._buckets.items():
            begin_us = max(number * _BUCKET_US, float(self._since_us[position]))
            over_us = min((number + 1) * _BUCKET_US, self._counted_us) - begin_us
            if most[position] and over_us > 0:
                found.append((number, float(row_us[position]) / over_us, int(most[position])))
        return found
