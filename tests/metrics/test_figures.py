"""Metrics of results: worked examples, and accumulators that merge in any order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.metrics.quality_of_service import (
    MetricsRecord,
    StaleTime,
    Summary,
    freshness,
    staleness,
    stretches,
    tardiness,
    time_by_bucket,
)

VALUES = st.lists(st.floats(0, 1e6), max_size=20)


@given(VALUES, st.integers(0, 20))
def test_summaries_merge(values: list[float], cut: int) -> None:
    whole, left, right = Summary(), Summary(), Summary()
    whole.add(values)
    left.add(values[:cut])
    right.add(values[cut:])
    right.merge(left)
    assert (whole.count, whole.total, whole.squares) == pytest.approx(
        (right.count, right.total, right.squares)
    )
    assert whole.largest == right.largest or not values


def test_a_summary_without_values_has_no_metrics() -> None:
    empty = Summary()
    assert all(math.isnan(x) for x in (empty.mean, empty.l2, empty.root_mean_square, empty.largest))
    assert math.isnan(freshness([]))


def test_golden_g16_staleness_is_the_union_of_intervals() -> None:
    assert staleness([(10, 18), (15, 30), (50, 55)], 0, 100) == 0.25
    assert freshness([0.25, 0.75]) == 0.5
    assert freshness([0.25, 0.75], [3, 1]) == pytest.approx(0.625)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=12))
def test_staleness_of_results_in_any_order_is_the_union_of_their_intervals(
    waits: list[tuple[float, float]],
) -> None:
    """A result that arrived earlier may be emitted later; departure times never decrease."""
    online, intervals, last = StaleTime(), [], 0.0
    for arrival, wait in waits:
        last = max(last, arrival + wait)
        intervals.append((arrival, last))
        online.add_batch([arrival], last)
    assert online.staleness(500) == pytest.approx(staleness(intervals, 0, 500))


def test_tardiness_is_never_negative() -> None:
    assert tardiness([5, 9], [7, 4]).tolist() == [0, 5]


def test_a_record_can_be_read_by_query_class_and_time() -> None:
    record, other = (
        MetricsRecord(bucket=10, classes={"a": "cheap"}),
        MetricsRecord(bucket=10, classes={"b": "dear"}),
    )
    record.at("a", 3).add_emitted([1, 2], [2, 4], ideal_time=0.5)
    other.at("b", 13).add_emitted([10], [13], ideal_time=1.0)
    other.at("a", 14).add_emitted([13], [14], ideal_time=0.5)
    record.merge(other)
    assert record.of_query("a").response.mean == pytest.approx(4 / 3)
    assert record.of_query("a").slowdown.largest == 4
    assert record.of_class("dear").response.count == record.of_bucket(0).response.count - 1 == 1
    assert record.overall().slowdown.total == pytest.approx(2 + 4 + 3 + 2)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 30)), max_size=12),
    st.sampled_from([1.0, 7.0, math.inf]),
)
def test_time_is_divided_over_buckets_without_loss(
    intervals: list[tuple[float, float]], width: float
) -> None:
    begins = np.array([begin for begin, _ in intervals])
    ends = np.array([begin + length for begin, length in intervals])
    found = time_by_bucket(begins, ends, width)
    one_by_one: dict[int, float] = {}
    for begin, end in zip(begins, ends, strict=True):
        for number, length in stretches(begin, end, width):
            assert 0 < length <= width
            one_by_one[number] = one_by_one.get(number, 0.0) + length
    assert sum(one_by_one.values()) == pytest.approx(float((ends - begins).sum()), abs=1e-6)
    for number in {*found, *one_by_one}:
        assert found.get(number, 0.0) == pytest.approx(one_by_one.get(number, 0.0), abs=1e-6)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 30)), max_size=12), st.integers(0, 12))
def test_missing_results_by_bucket_are_the_union_of_intervals_and_merge(
    waits: list[tuple[float, float]], cut: int
) -> None:
    """Two observers of one query in succession together measure as much as one observer."""
    online, intervals, last = StaleTime(), [], 0.0
    parts = MetricsRecord(10.0), MetricsRecord(10.0)
    for place, (arrival, wait) in enumerate(waits):
        last = max(last, arrival + wait)
        intervals.append((arrival, last))
        for stretch in online.add(arrival, last):
            parts[place >= cut].missing("q", *stretch)
    whole = MetricsRecord(10.0)
    for part in parts:
        whole.merge(part)
    for number in range(14):
        expected = 10 * staleness(intervals, 10.0 * number, 10.0 * number + 10)
        assert whole.of_bucket(number).stale == pytest.approx(expected, abs=1e-6)
    assert whole.of_query("q").stale == pytest.approx(online.stale, abs=1e-6)


def test_slowdown_of_a_composite_result_uses_only_its_last_part() -> None:
    record = MetricsRecord(10.0)
    record.at("q", 0).add_emitted(
        [10], [29], ideal_time=11, last_part=8
    )  # G10: the left part had arrived long before
    assert record.overall().slowdown.mean == pytest.approx(2)
