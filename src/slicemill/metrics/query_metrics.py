"""Metrics of a query: response times, slowdown, tardiness, staleness, memory (P6-P9, P24, P29-P31).

Metrics are collected in total and by time bucket. Times are in seconds. Results are warm-up results if the
tuples that caused them arrived before each task on their way had run once. Their response times include the
start of processes and compilation, so they are counted separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slicemill.catalog.queries import ServiceLevel
from slicemill.metrics.due_times import Arrivals
from slicemill.metrics.quality_of_service import (
    BUCKETS_KEPT,
    IdealTime,
    MetricsRecord,
    Quantiles,
    QueryStatistics,
    StaleTime,
    Summary,
)
from slicemill.shedding.accuracy import AccuracyReport


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of a query's task: waiting rows, and bytes of state."""

    rows: int = 0
    mean_rows: float = 0.0
    most_rows: int = 0
    state_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class QueryMetrics:
    """Metrics of one query.

    `since_s` is the start time of the query. `ideal_s` is the ideal time of a result. `policy` is the policy
    that schedules the query's component of the graph.
    """

    query: str
    since_s: float
    weight: float = 1.0
    slo: ServiceLevel | None = None
    policy: str = ""
    rows: int = 0
    ideal_s: float = math.nan
    figures: QueryStatistics = field(default_factory=QueryStatistics)
    responses: Quantiles = field(default_factory=Quantiles)
    warm_up: Quantiles = field(default_factory=Quantiles)  # response times while tasks run for the first time
    stale: StaleTime = field(default_factory=StaleTime)
    memory: MemoryUse = MemoryUse()
    shed: AccuracyReport | None = None  # report of tuples dropped by load shedding, if there is any
    seen_s: float = 0.0
    cpu_s: float = 0.0  # processor time of all runs of the query's task
    python_s: float = 0.0  # seconds of cpu_s in kernels that were not compiled yet
    collecting_s: float = 0.0  # seconds of cpu_s in garbage collection

    def add(
        self,
        rows: int,
        arrivals: Arrivals,
        now_s: float,
        ideal: IdealTime,
        record: MetricsRecord,
        warm_s: float = -math.inf,
    ) -> None:
        """Add new results of the query. `arrivals` has the times at which they became due.

        `warm_s` is the end of the warm-up.
        """
        self.rows += rows
        self.ideal_s = ideal.whole_s
        if not arrivals:
            return
        came, times = np.array(arrivals, np.float64).T
        came = np.minimum(came / 1_000_000, now_s)
        warm = came > warm_s
        if not warm.all():
            self.warm_up.add(now_s - came[~warm], times[~warm].astype(int))
        oldest = int(now_s // record.bucket) - BUCKETS_KEPT
        record.forget(oldest)
        for begin, end in self.stale.add_batch(np.maximum(came, self.since_s), now_s):
            record.missing(self.query, max(begin, oldest * record.bucket), end)
        came, times = came[warm], times[warm]
        if not len(came):
            return
        new = QueryStatistics()
        new.add_emitted(came, now_s, ideal.whole_s, times, ideal.last_s)
        if self.slo is not None:
            new.tardiness.add(np.maximum(now_s - came - self.slo.bound_s, 0.0), times)
        self.figures.merge(new)
        record.at(self.query, now_s).merge(new)
        self.responses.add(now_s - came, times.astype(int))

    def note_waiting(self, by_bucket: Iterable[tuple[int, float, int]], record: MetricsRecord) -> None:
        """Set the number of rows that wait for the query's task, for each time bucket.

        `by_bucket` has the bucket number, the average and the maximum of each bucket.
        """
        for number, mean, most in by_bucket:
            figures = record.numbered(self.query, number)
            begin = number * record.bucket
            figures.waited = mean * self.watched_s(begin, begin + record.bucket)
            figures.most_waiting = most

    def watched_s(self, begin_s: float, end_s: float) -> float:
        """Return the number of seconds for which the query existed within a time span."""
        return max(0.0, min(end_s, self.seen_s) - max(begin_s, self.since_s))

    def response_ms(self, quantile: float) -> float | None:
        """Return a quantile of the response times in milliseconds.

        Return None if there are no results. Warm-up results are not counted.
        """
        return None if not self.responses.counts else 1000 * self.responses.at(quantile)

    @property
    def staleness(self) -> float:
        """Return the share of time in which a due result of the query was missing."""
        return self.stale.staleness(self.seen_s - self.since_s)

    @property
    def level_s(self) -> float:
        """Return the measured response time that the service level of the query bounds.

        The value is a quantile, the mean or the maximum of the response times.
        """
        if self.slo is None:
            return math.nan
        if self.slo.measure == "mean":
            return self.figures.response.mean
        if self.slo.measure == "max":
            return self.figures.response.largest
        return self.responses.at(int(self.slo.measure[1:]) / 100)

    @property
    def met(self) -> bool | None:
        """Return True if the service level of the query is met, or None if there are no data."""
        level = self.level_s
        return None if self.slo is None or math.isnan(level) else level < self.slo.bound_s

    def plain(self) -> dict[str, Any]:
        """Return all metrics as JSON values. A metric without data is null."""
        response = self.figures.response
        found: dict[str, Any] = {
            "query": self.query,
            "weight": self.weight,
            "policy": self.policy,
            "rows": self.rows,
            "response_s": {
                **_plain(response),
                **{f"p{share}": _number(self.responses.at(share / 100)) for share in (50, 95, 99)},
            },
            "warm_up": {"count": self.warm_up.count, "p50": _number(self.warm_up.at(0.5))},
            "ideal_s": _number(self.ideal_s),
            "slowdown": _plain(self.figures.slowdown),
            "staleness": _number(self.staleness),
            "freshness": _number(1 - self.staleness),
            "task_cpu_s": {
                "all": round(self.cpu_s, 6),
                "loops_as_python": round(self.python_s, 6),
                "garbage_collection": round(self.collecting_s, 6),
            },
            "memory": {
                "rows_waiting": self.memory.rows,
                "mean_rows_waiting": round(self.memory.mean_rows, 3),
                "most_rows_waiting": self.memory.most_rows,
                "state_bytes": self.memory.state_bytes,
            },
        }
        if self.shed is not None:
            found["shed"] = self.shed.plain()
        if self.slo is not None:
            found["slo"] = {
                "level": str(self.slo),
                "measured_s": _number(self.level_s),
                "met": self.met,
                "tardiness_s": _plain(self.figures.tardiness),
            }
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MillMetrics:
    """Metrics of all queries, streams, subtasks, and scheduling decisions.

    `failing` maps each stream whose source cannot be read now to the reason.
    """

    policy: str
    decisions: Summary
    queries: Sequence[QueryMetrics]
    record: MetricsRecord
    streams: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    subtasks: Sequence[Mapping[str, Any]] = ()

    @property
    def overall(self) -> QueryStatistics:
        whole = QueryStatistics()
        for query in self.queries:
            whole.merge(query.figures)
        return whole

    @property
    def staleness(self) -> float:
        """Return the weighted mean of the staleness of all queries (P31)."""
        if not self.queries:
            return math.nan
        return float(
            np.average([query.staleness for query in self.queries], weights=[q.weight for q in self.queries])
        )

    def plain(self) -> dict[str, Any]:
        """Return all metrics as JSON values: by query, by time bucket, in total."""
        overall = self.overall
        return {
            "policy": self.policy,
            "decision_s": _plain(self.decisions),
            "response_s": _plain(overall.response),
            "slowdown": _plain(overall.slowdown),
            "tardiness_s": _plain(overall.tardiness),
            "staleness": _number(self.staleness),
            "queries": [query.plain() for query in self.queries],
            "streams": {name: dict(counts) for name, counts in self.streams.items()},
            "failing_sources": dict(self.failing),
            "subtasks": [dict(subtask) for subtask in self.subtasks],
            "bucket_s": self.record.bucket,
            "buckets": self._buckets(),
        }

    def _buckets(self) -> list[dict[str, Any]]:
        known = {query.query: query for query in self.queries}
        found = []
        for (query, number), figures in sorted(self.record.figures.items(), key=lambda entry: entry[0]):
            begin = number * self.record.bucket
            there_s = known[query].watched_s(begin, begin + self.record.bucket) if query in known else 0.0
            stale = figures.stale / there_s if there_s else math.nan
            found.append(
                {
                    "query": query,
                    "from_s": begin,
                    "response_s": _plain(figures.response),
                    "slowdown": _plain(figures.slowdown),
                    "tardiness_s": _plain(figures.tardiness),
                    "staleness": _number(stale),
                    "freshness": _number(1 - stale),
                    "memory": {
                        "mean_rows_waiting": _number(figures.waited / there_s if there_s else math.nan),
                        "most_rows_waiting": int(figures.most_waiting),
                    },
                }
            )
        return found


def _plain(summary: Summary) -> dict[str, Any]:
    return {
        "count": summary.count,
        "mean": _number(summary.mean),
        "max": _number(summary.largest),
        "l2": _number(summary.l2),
    }


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
