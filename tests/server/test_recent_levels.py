"""Service levels over the results of the last minute."""

from __future__ import annotations

import pytest

from slicemill.catalog.queries import service_level
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.server.sampling import RECENT_S, RecentLevels


def counted(level: str | None, *responses: float) -> QueryMetrics:
    metrics = QueryMetrics(query="q", since_s=0.0, slo=None if level is None else service_level(level))
    metrics.responses.add(responses)
    metrics.figures.response.add(responses)
    return metrics


@pytest.mark.parametrize(
    ("level", "first", "second"), [("p50 < 1 s", 5, 0.2), ("max < 1 s", 9, 0.4), ("mean < 1 s", 6, 0.25)]
)
def test_responses_older_than_a_minute_do_not_count_for_the_service_level(
    level: str, first: float, second: float
) -> None:
    levels, metrics = RecentLevels(), counted(level, 4, 5, 9)
    assert levels.measured_s("q", metrics, 0.0) == pytest.approx(first, rel=0.02)
    later = counted(level, 4, 5, 9, 0.2, 0.4, 0.2, 0.2)
    assert levels.measured_s("q", later, RECENT_S - 1) == pytest.approx(
        {"p50": 0.4, "max": 9, "mean": 19 / 7}[level.split()[0]], rel=0.02
    )
    assert levels.measured_s("q", later, RECENT_S) == pytest.approx(second, rel=0.02)
    assert levels.measured_s("q", later, 2 * RECENT_S) is None  # No result has arrived since.


def test_a_query_without_level_or_results_has_no_measured_level() -> None:
    levels = RecentLevels()
    assert levels.measured_s("q", counted(None, 4), 0.0) is None
    assert levels.measured_s("q", counted("p99 < 1 s"), 0.0) is None


def test_a_new_query_with_the_name_of_a_dropped_query_starts_without_measurements() -> None:
    levels = RecentLevels()
    levels.measured_s("q", counted("max < 1 s", 4, 4, 4), 0.0)
    levels.forget_others(["r"])
    assert levels.measured_s("q", counted("max < 1 s", 0.5), 1.0) == pytest.approx(0.5, rel=0.02)
