"""Figures of results: worked examples, and that accumulators merge in any order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.scheduling.metrics import Record, StaleTime, Summary, freshness, staleness, tardiness

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


def test_nothing_has_no_figures() -> None:
    empty = Summary()
    assert all(math.isnan(x) for x in (empty.mean, empty.l2, empty.root_mean_square, empty.largest))
    assert math.isnan(freshness([]))


def test_golden_g16_staleness_is_the_union_of_intervals() -> None:
    assert staleness([(10, 18), (15, 30), (50, 55)], 0, 100) == 0.25
    assert freshness([0.25, 0.75]) == 0.5
    assert freshness([0.25, 0.75], [3, 1]) == pytest.approx(0.625)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=12))
def test_results_in_order_need_no_list_of_intervals(waits: list[tuple[float, float]]) -> None:
    online, intervals, last = StaleTime(), [], 0.0
    for arrival, wait in sorted(waits):
        last = max(last, arrival + wait)
        intervals.append((arrival, last))
        online.add_batch([arrival], last)
    assert online.staleness(500) == pytest.approx(staleness(intervals, 0, 500))


def test_tardiness_is_never_negative() -> None:
    assert tardiness([5, 9], [7, 4]).tolist() == [0, 5]


def test_a_record_is_read_by_query_class_and_time() -> None:
    record, other = Record(bucket=10, classes={"a": "cheap"}), Record(bucket=10, classes={"b": "dear"})
    record.at("a", 3).emitted([1, 2], [2, 4], ideal_time=0.5)
    other.at("b", 13).emitted([10], [13], ideal_time=1.0)
    other.at("a", 14).emitted([13], [14], ideal_time=0.5)
    record.merge(other)
    assert record.of_query("a").response.mean == pytest.approx(4 / 3)
    assert record.of_query("a").slowdown.largest == 4
    assert record.of_class("dear").response.count == record.of_bucket(0).response.count - 1 == 1
    assert record.overall().slowdown.total == pytest.approx(2 + 4 + 3 + 2)
