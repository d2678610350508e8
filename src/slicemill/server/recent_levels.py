"""Service levels over the last minute, so that a slow start long ago is not reported any more."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from slicemill.esl.types.service_level import ServiceLevel
from slicemill.metrics.quantiles import Quantiles
from slicemill.metrics.query_metrics import QueryMetrics

RECENT_S = 60.0


@dataclass(frozen=True, slots=True)
class _CountedResults:
    """Cumulative response time counters of a query at one moment."""

    at_s: float
    counts: dict[int, int]
    results: int
    total_s: float


class RecentLevels:
    """Sliding one-minute measure of each query's service level."""

    def __init__(self) -> None:
        self._counted: dict[str, deque[_CountedResults]] = {}

    def measured_s(self, name: str, metrics: QueryMetrics, at_s: float) -> float | None:
        """Return the service level's measure over the last minute; None without a level or results."""
        if metrics.slo is None:
            return None
        response = metrics.figures.response
        now = _CountedResults(at_s, dict(metrics.responses.counts), response.count, response.total)
        kept = self._counted.setdefault(name, deque([_CountedResults(at_s, {}, 0, 0.0)]))
        kept.append(now)
        while len(kept) > 2 and kept[1].at_s <= at_s - RECENT_S:
            kept.popleft()
        return _between(kept[0], now, metrics.slo)

    def forget_others(self, names: Collection[str]) -> None:
        for name in self._counted.keys() - set(names):
            del self._counted[name]


def _between(before: _CountedResults, now: _CountedResults, level: ServiceLevel) -> float | None:
    results = now.results - before.results
    if results <= 0:
        return None
    if level.measure == "mean":
        return (now.total_s - before.total_s) / results
    share = 1.0 if level.measure == "max" else int(level.measure[1:]) / 100
    fresh = Quantiles({index: n - before.counts.get(index, 0) for index, n in now.counts.items()})
    found = fresh.at(share)
    return None if math.isnan(found) else found
