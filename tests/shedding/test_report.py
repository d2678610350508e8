"""Shedding reports of subtasks add up to the report of the task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.shedding.accuracy import BUCKETS, AccuracyReport, AccuracySums, merge_reports

runs = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(0, 9)), max_size=2 * BUCKETS)


@given(st.lists(runs, min_size=1, max_size=4))
def test_reports_of_subtasks_add_up_to_the_totals(subtasks: list[list[tuple[int, int, int]]]) -> None:
    reports = []
    for own in subtasks:
        reports.append(AccuracyReport())
        for ts, stayed, dropped in sorted(own):
            reports[-1].arrived += stayed + dropped
            reports[-1].dropped += dropped
            reports[-1].add(ts, AccuracySums(float(stayed), stayed + dropped))
    every = [run for own in subtasks for run in own]
    whole = merge_reports(reports)
    arrived = sum(stayed + dropped for _, stayed, dropped in every)
    assert (whole.arrived, whole.dropped) == (arrived, sum(dropped for _, _, dropped in every))
    assert whole.accuracy == pytest.approx(1 - whole.dropped / arrived if arrived else 1.0)
    assert len(whole.buckets) <= BUCKETS
    assert [bucket.begin for bucket in whole.buckets] == sorted(bucket.begin for bucket in whole.buckets)
