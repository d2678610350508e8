"""What users feel: response time, slowdown, tardiness and staleness of results (P6-P9, P22, P24, P30-P31).

Figures are gathered in accumulators that merge, so they can be kept per query, class and time bucket, in
several places, and put together in any order. A figure over nothing is not a number, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from slicemill.scheduling.policy import Floats


@dataclass(slots=True)
class Summary:
    """Count, sum, sum of squares and greatest of some values."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: float = math.nan

    def add(self, values: npt.ArrayLike, times: npt.ArrayLike = 1) -> None:
        """Add values, each so many times."""
        given = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if len(given):
            often = np.broadcast_to(np.asarray(times, dtype=np.float64), given.shape)
            total, squares = float(given @ often), float((given * given) @ often)
            self.merge(Summary(int(often.sum()), total, squares, float(given.max())))

    def merge(self, other: Summary) -> None:
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.largest = float(np.fmax(self.largest, other.largest))

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
    """For how long an output stream lacked a result that had arrived (P30): results come in FIFO order."""

    stale: float = 0.0
    covered_until: float = -math.inf

    def add(self, arrival: float, departure: float) -> None:
        self.stale += max(0.0, departure - max(arrival, self.covered_until))
        self.covered_until = max(self.covered_until, departure)

    def add_batch(self, arrivals: npt.ArrayLike, departure: float) -> None:
        """Results that leave together are stale together, from the arrival of the oldest."""
        given = np.atleast_1d(np.asarray(arrivals, dtype=np.float64))
        if len(given):
            self.add(float(given.min()), departure)

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


@dataclass(slots=True)
class QueryFigures:
    """All figures of one query, or of a class of queries, in one stretch of time."""

    response: Summary = field(default_factory=Summary)
    slowdown: Summary = field(default_factory=Summary)
    tardiness: Summary = field(default_factory=Summary)

    def emitted(
        self,
        arrivals: npt.ArrayLike,
        departures: npt.ArrayLike,
        ideal_time: float,
        times: npt.ArrayLike = 1,
    ) -> None:
        """Results that left, each so many times; discarded tuples contribute nothing."""
        responses = np.asarray(departures, np.float64) - np.asarray(arrivals, np.float64)
        self.response.add(responses, times)
        if ideal_time > 0:
            self.slowdown.add(responses / ideal_time, times)

    def merge(self, other: QueryFigures) -> None:
        self.response.merge(other.response)
        self.slowdown.merge(other.slowdown)
        self.tardiness.merge(other.tardiness)


@dataclass(slots=True)
class Record:
    """Figures by query and time bucket; `classes` says which queries belong together."""

    bucket: float
    classes: dict[str, str] = field(default_factory=dict)
    figures: dict[tuple[str, int], QueryFigures] = field(default_factory=dict)

    def at(self, query: str, time: float) -> QueryFigures:
        return self.figures.setdefault((query, int(time // self.bucket)), QueryFigures())

    def merge(self, other: Record) -> None:
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
