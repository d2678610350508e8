"""Metrics of one query, from arrivals and departures."""

from __future__ import annotations

import json
import math

import pytest

from slicemill.catalog.queries import ServiceLevel, service_level
from slicemill.metrics.quality_of_service import IdealTime, MetricsRecord, Summary
from slicemill.metrics.query_metrics import MillMetrics, QueryMetrics

SECOND = 1_000_000


def metrics(slo: str | None = None, weight: float = 1.0, name: str = "q") -> QueryMetrics:
    return QueryMetrics(query=name, since_s=0.0, weight=weight, slo=service_level(slo) if slo else None)


def test_metrics_count_every_result_and_buckets_add_up() -> None:
    query, record = metrics("mean < 3 s"), MetricsRecord(10.0)
    query.add(3, ((10 * SECOND, 2), (15 * SECOND, 1)), 18.0, IdealTime(2.0, 2.0), record)
    query.add(1, ((15 * SECOND, 1),), 30.0, IdealTime(2.0, 2.0), record)
    query.add(5, (), 31.0, IdealTime(2.0, 2.0), record)  # results released by time alone
    query.seen_s = 100.0
    response = query.figures.response
    assert (query.rows, response.count) == (9, 4)
    assert response.mean == pytest.approx((8 + 8 + 3 + 15) / 4)
    assert response.l2 == pytest.approx(math.sqrt(64 + 64 + 9 + 225))
    assert query.figures.slowdown.largest == pytest.approx(7.5)
    assert query.figures.tardiness.total == pytest.approx(5 + 5 + 0 + 12)
    assert query.response_ms(0.5) == pytest.approx(8000, rel=0.01)
    assert query.met is False
    # G16: stale from 10 to 18 and from 18 to 30, because the second interval begins within the first.
    assert query.staleness == pytest.approx(0.20)
    assert record.of_bucket(1).response.count == 3
    assert record.overall().response.l2 == pytest.approx(response.l2)


def test_results_of_tuples_before_the_first_run_count_as_warm_up() -> None:
    query, record = metrics("p50 < 3 s"), MetricsRecord(10.0)
    query.add(2, ((SECOND, 1), (2 * SECOND, 1)), 12.0, IdealTime(1.0, 1.0), record, warm_s=12.0)
    assert query.response_ms(0.5) is None and query.met is None
    query.add(2, ((11 * SECOND, 1), (13 * SECOND, 1)), 15.0, IdealTime(1.0, 1.0), record, warm_s=12.0)
    query.seen_s = 20.0
    assert (query.rows, query.warm_up.count, query.figures.response.count) == (4, 3, 1)
    assert query.response_ms(0.5) == pytest.approx(2000, rel=0.01) and query.met is True
    assert query.plain()["warm_up"] == {"count": 3, "p50": pytest.approx(10, rel=0.01)}
    # Staleness during the warm-up counts nevertheless.
    assert query.staleness == pytest.approx(14 / 20)


def test_buckets_contain_staleness_and_waiting_rows() -> None:
    query, record = metrics(), MetricsRecord(10.0)
    query.since_s, query.seen_s = 5.0, 42.0
    query.add(2, ((3 * SECOND, 1), (15 * SECOND, 1)), 18.0, IdealTime(1.0, 1.0), record)
    query.add(1, ((25 * SECOND, 1),), 41.0, IdealTime(1.0, 1.0), record)
    query.note_waiting([(0, 4.0, 9), (1, 2.5, 5)], record)
    plain = MillMetrics(policy="fcfs", decisions=Summary(), queries=[query], record=record).plain()["buckets"]
    assert [bucket["from_s"] for bucket in plain] == [0, 10, 20, 30, 40]
    # The query was created at 5, and was stale until 18 and from 25 to 41; 2 s of the last bucket have
    # passed.
    assert [bucket["staleness"] for bucket in plain] == pytest.approx([1, 0.8, 0.5, 1, 0.5])
    assert [bucket["freshness"] for bucket in plain] == pytest.approx([0, 0.2, 0.5, 0, 0.5])
    assert plain[0]["memory"] == {"mean_rows_waiting": 4, "most_rows_waiting": 9}
    assert plain[1]["memory"] == {"mean_rows_waiting": 2.5, "most_rows_waiting": 5}
    assert plain[2]["memory"] == {"mean_rows_waiting": 0, "most_rows_waiting": 0}
    assert record.of_query("q").stale == pytest.approx(13 + 16) == query.staleness * (42 - 5)
    # A dropped query keeps the metrics of its results, but not its lifetime.
    gone = MillMetrics(policy="fcfs", decisions=Summary(), queries=[], record=record).plain()["buckets"]
    assert gone[0]["staleness"] is None and gone[1]["response_s"]["count"] == 2


def test_old_buckets_are_dropped() -> None:
    query, record = metrics(), MetricsRecord(10.0)
    for moment in range(0, 10_000, 10):
        query.add(1, ((moment * SECOND + 1, 1),), moment + 1.0, IdealTime(1.0, 1.0), record)
    assert 360 <= len(record.figures) <= 362
    assert query.figures.response.count == 1000


@pytest.mark.parametrize(
    ("level", "met"),
    [
        ("p50 < 2 s", True),
        ("p95 < 2 s", False),
        ("max < 11 s", True),
        ("max < 10 s", False),
        ("mean < 2 s", True),
    ],
)
def test_a_service_level_is_met_by_its_own_measure(level: str, met: bool) -> None:
    query = metrics(level)
    query.add(10, ((19 * SECOND, 9), (10 * SECOND, 1)), 20.0, IdealTime(1.0, 1.0), MetricsRecord(10.0))
    assert query.met is met


def test_without_results_metrics_are_null_and_no_level_is_met() -> None:
    plain = metrics("p99 < 2 s").plain()
    assert plain["response_s"] == dict.fromkeys(("mean", "max", "l2", "p50", "p95", "p99")) | {"count": 0}
    assert plain["slo"]["met"] is None
    assert metrics().met is None
    together = MillMetrics(
        policy="fcfs", decisions=Summary(), queries=[metrics()], record=MetricsRecord(10.0)
    ).plain()
    assert json.loads(json.dumps(together, allow_nan=False))["slowdown"]["mean"] is None


def test_staleness_of_the_engine_is_weighted_by_query() -> None:
    stale, fresh = metrics(weight=3.0), metrics(name="fresh")
    stale.add(1, ((50 * SECOND, 1),), 100.0, IdealTime(1.0, 1.0), MetricsRecord(10.0))
    for query in (stale, fresh):
        query.seen_s = 100.0
    assert MillMetrics(
        policy="fas", decisions=Summary(), queries=[stale, fresh], record=MetricsRecord(10.0)
    ).staleness == pytest.approx(0.375)


def test_malformed_service_levels_are_rejected() -> None:
    assert service_level(" MEAN<1.5 min ") == ServiceLevel("mean", 90 * SECOND)
    for wrong in (
        "p99 > 2 s",
        "p90 < 2 s",
        "p99 < 2",
        "p99 < 2 months",
        "99 < 2 s",
        "p99 < -1 s",
        "p99 < 2 s!",
    ):
        assert service_level(wrong) is None
