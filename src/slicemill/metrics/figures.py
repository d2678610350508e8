"""Quality of service: response time, slowdown, tardiness and staleness of results, and what waits for them
(P6-P9, P22, P24, P29-P31).

Figures are gathered in accumulators that merge, so they can be kept per query, class and time bucket, in
several places, and put together in any order. A figure over nothing is not a number, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# A result that was due before so many stretches of time without a missing one counts from the last of them.
_STRETCHES_KEPT = 1_000


class IdealTime(NamedTuple):
    """Seconds: T, and what the last row takes by the longest way, when those that it meets are there."""

    whole_s: float
    last_s: float


@dataclass(slots=True)
class Summary:
    """Count, sum, sum of squares and greatest of some values."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: float = math.nan

    def add(self, values: npt.ArrayLike, times: npt.ArrayLike = 1) -> None:
        """Add values, each so many times."""
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
        """The ℓ2 norm: a sum, so it grows with the number of values (P9)."""
        return math.sqrt(self.squares) if self.count else math.nan

    @property
    def root_mean_square(self) -> float:
        """The ℓ2 norm made comparable between runs with different numbers of results."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass(slots=True)
class StaleTime:
    """For how long an output stream lacked a result that had arrived (P30).

    Results may leave in another order than they arrived in: those of a union do, whose streams lag behind
    each other. So it is known when nothing was missing.
    """

    stale: float = 0.0
    covered_until: float = -math.inf
    _fresh: list[tuple[float, float]] = field(default_factory=list)  # before that, the latest last

    def add(self, arrival: float, departure: float) -> list[tuple[float, float]]:
        """Of the time that a result was missing, the stretches in which no other was, so far."""
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
        """Results that leave together are stale together, from the arrival of the oldest."""
        return self.add(float(np.min(arrivals)), departure)

    def staleness(self, duration: float) -> float:
        return self.stale / duration if duration > 0 else math.nan


def staleness(intervals: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """The part of [begin, end) that is covered by [arrival, departure) of emitted results (P30)."""
    covered = StaleTime(covered_until=begin)
    for arrival, departure in sorted(intervals):
        covered.add(min(arrival, end), min(departure, end))
    return covered.staleness(end - begin)


def freshness(stalenesses: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The mean freshness of several output streams, weighted by importance if weights are given (P31)."""
    if not stalenesses:
        return math.nan
    return 1.0 - float(np.average(stalenesses, weights=weights))


def tardiness(completion: npt.ArrayLike, deadline: npt.ArrayLike) -> Floats:
    """By how much each aggregate instant came too late (P24)."""
    return np.maximum(0.0, np.asarray(completion, np.float64) - np.asarray(deadline, np.float64))


def stretches(begin: float, end: float, width: float) -> Iterator[tuple[int, float]]:
    """The time buckets between two moments, and how much of each lies between them."""
    number = math.floor(begin / width)
    while begin < end:
        border = min(end, (number + 1) * width)
        if border > begin:
            yield number, border - begin
            begin = border
        number += 1


def spread(begins: Floats, ends: Floats, width: float) -> dict[int, float]:
    """For how long, in each time bucket, something was between its begin and its end, all together."""
    if not len(begins):
        return {}
    if math.isinf(width):  # one bucket for all time
        return {0: float((ends - begins).sum())}
    first, last = math.floor(begins.min() / width), math.ceil(ends.max() / width)
    edges = np.arange(first, last + 1) * width
    passed = _passed(begins, edges) - _passed(ends, edges)
    return {first + index: float(length) for index, length in enumerate(np.diff(passed)) if length > 0}


def _passed(moments: Floats, edges: Floats) -> Floats:
    """At each edge, the time since each of the moments before it, all together."""
    moments = np.sort(moments)
    sums = np.concatenate(([0.0], np.cumsum(moments)))
    before = np.searchsorted(moments, edges)
    since: Floats = before * edges - sums[before]
    return since


@dataclass(slots=True)
class QueryFigures:
    """All figures of one query, or of a class of queries, in one stretch of time.

    Staleness and mean memory are `stale` and `waited` over how long the queries were there: who asks knows.
    """

    response: Summary = field(default_factory=Summary)
    slowdown: Summary = field(default_factory=Summary)
    tardiness: Summary = field(default_factory=Summary)
    stale: float = 0.0
    """For how long a result was missing; of several queries, the sum."""
    waited: float = 0.0
    """For how long tuples waited in queues, all together."""
    most_waiting: float = 0.0
    """Tuples in the queues of one query."""

    def emitted(
        self,
        arrivals: npt.ArrayLike,
        departures: npt.ArrayLike,
        ideal_time: float,
        times: npt.ArrayLike = 1,
        last_part: float | None = None,
    ) -> None:
        """Results that left, each so many times; discarded tuples contribute nothing.

        Of a composite, `last_part` is what the tuple takes that arrives last, alone: the slowdown is by how
        much it left late, over all work on its parts (P22).
        """
        responses = np.asarray(departures, np.float64) - np.asarray(arrivals, np.float64)
        self.response.add(responses, times)
        if ideal_time > 0:
            alone = ideal_time if last_part is None else last_part
            self.slowdown.add(1.0 + (responses - alone) / ideal_time, times)

    def merge(self, other: QueryFigures) -> None:
        self.response.merge(other.response)
        self.slowdown.merge(other.slowdown)
        self.tardiness.merge(other.tardiness)
        self.stale += other.stale
        self.waited += other.waited
        self.most_waiting = max(self.most_waiting, other.most_waiting)


@dataclass(slots=True)
class Record:
    """Figures by query and time bucket; `classes` says which queries belong together."""

    bucket: float
    classes: dict[str, str] = field(default_factory=dict)
    figures: dict[tuple[str, int], QueryFigures] = field(default_factory=dict)
    kept_from: float = -math.inf
    """The number of the first bucket that is not forgotten."""

    def at(self, query: str, time: float) -> QueryFigures:
        return self.numbered(query, int(time // self.bucket))

    def numbered(self, query: str, number: int) -> QueryFigures:
        found = self.figures.get((query, number))
        if found is None:
            found = self.figures[query, number] = QueryFigures()
        return found

    def forget(self, number: int) -> None:
        """Drop the buckets before this one."""
        if number <= self.kept_from:
            return
        self.kept_from = number
        for key in [key for key in self.figures if key[1] < number]:
            del self.figures[key]

    def missing(self, query: str, begin: float, end: float) -> None:
        """A query lacked a result from one moment to another."""
        for number, length in stretches(begin, end, self.bucket):
            self.numbered(query, number).stale += length

    def merge(self, other: Record) -> None:
        """What is known of other queries, or of other stretches of their time."""
        self.classes.update(other.classes)
        for key, figures in other.figures.items():
            self.figures.setdefault(key, QueryFigures()).merge(figures)

    def of_query(self, query: str) -> QueryFigures:
        return self._merged(figures for (name, _), figures in self.figures.items() if name == query)

    def of_class(self, name: str) -> QueryFigures:
        return self._merged(
            figures for (query, _), figures in self.figures.items() if self.classes.get(query) == name
        )

    def of_bucket(self, number: int) -> QueryFigures:
        return self._merged(figures for (_, bucket), figures in self.figures.items() if bucket == number)

    def overall(self) -> QueryFigures:
        return self._merged(self.figures.values())

    @staticmethod
    def _merged(parts: Iterable[QueryFigures]) -> QueryFigures:
        whole = QueryFigures()
        for part in parts:
            whole.merge(part)
        return whole
