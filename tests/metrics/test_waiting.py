"""Rows that wait at tasks over time, against a count second by second."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.metrics.quality_of_service import BUCKET_S, BUCKETS_KEPT, WaitingRows

SECOND = 1_000_000

steps = st.lists(
    st.tuples(st.integers(1, 25), st.lists(st.integers(0, 9), min_size=2, max_size=2)), max_size=12
)


@given(steps, st.integers(0, 12))
def test_means_by_bucket_equal_those_of_every_second(
    history: list[tuple[int, list[int]]], change: int
) -> None:
    """After some time the task at index 1 moves to index 0 and replaces the task there."""
    waiting, rows, now = WaitingRows(2, 0), np.zeros(2, np.int64), 0
    every_second: list[int] = []
    watched = 1
    for number, (seconds, then) in enumerate(history):
        if number == change:
            later = WaitingRows(1, now * SECOND)
            later.take_over(waiting, {0: 1})
            waiting, rows, watched = later, rows[1:], 0
        now += seconds
        every_second += [int(rows[watched])] * seconds
        waiting.passed(rows, now * SECOND)
        rows = np.array(then[1:] if watched == 0 else then, np.int64)
        waiting.now(rows)
    found = {bucket: (mean, most) for bucket, mean, most in waiting.by_bucket(watched)}
    if now:
        assert waiting.of(watched)[0] == pytest.approx(np.mean(every_second))
    for bucket in range(int(now // BUCKET_S)):
        part = every_second[int(bucket * BUCKET_S) : int((bucket + 1) * BUCKET_S)]
        mean, most = found.get(bucket, (0.0, 0))
        assert mean == pytest.approx(np.mean(part))
        assert most >= max(part)


def test_rows_that_arrived_between_polls_count_from_their_arrival() -> None:
    waiting = WaitingRows(2, 0)
    waiting.passed(np.zeros(2, np.int64), 12 * SECOND)
    waiting.came(np.array([1]), 5, 8 * SECOND)
    waiting.now(np.array([0, 5]))
    assert waiting.of(1) == (pytest.approx(5 * 4 / 12), 5)
    assert waiting.by_bucket(1) == [(0, pytest.approx(1.0), 5), (1, pytest.approx(5.0), 5)]
    assert waiting.by_bucket(0) == []


def test_old_buckets_are_dropped() -> None:
    waiting, rows = WaitingRows(1, 0), np.ones(1, np.int64)
    for bucket in range(2 * BUCKETS_KEPT):
        waiting.passed(rows, int((bucket + 1) * BUCKET_S * SECOND))
    numbers = [number for number, _, _ in waiting.by_bucket(0)]
    assert numbers == list(range(BUCKETS_KEPT, 2 * BUCKETS_KEPT))
    assert waiting.of(0)[0] == pytest.approx(1)


def test_a_clock_jump_of_years_is_counted_quickly() -> None:
    years = 50 * 365 * 86_400
    waiting = WaitingRows(1, 0)
    waiting.passed(np.array([3]), years * SECOND)
    assert waiting.of(0)[0] == pytest.approx(3)
    assert len(waiting.by_bucket(0)) == BUCKETS_KEPT
