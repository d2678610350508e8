"""Selection of the tuples that stay when only a share of them can be processed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.shedding.load import in_whole_windows, keep_random, keep_useful, keep_windows

TIMES = st.lists(st.integers(0, 10**9), max_size=60).map(lambda found: np.array(sorted(found), np.int64))
SHARES = st.floats(0, 1)


def test_a_random_share_is_the_same_in_every_part_of_a_batch() -> None:
    times = np.repeat(np.arange(20_000, dtype=np.int64), 5)
    seqs = np.arange(len(times))
    kept = keep_random(times, seqs, 0.3)
    assert abs(kept.mean() - 0.3) < 0.01
    half = slice(0, len(times), 2)
    assert np.array_equal(kept[half], keep_random(times[half], seqs[half], 0.3))
    # Tuples with equal timestamps are selected independently.
    assert abs((kept.reshape(-1, 5).sum(axis=1) > 0).mean() - (1 - 0.7**5)) < 0.02


@given(TIMES, SHARES, SHARES)
def test_tuples_of_a_smaller_share_are_tuples_of_a_larger_share(
    times: np.ndarray, one: float, other: float
) -> None:
    less, more = sorted((one, other))
    seqs = np.arange(len(times))
    assert not (keep_random(times, seqs, less) & ~keep_random(times, seqs, more)).any()
    assert keep_random(times, seqs, 1.0).all()


@given(TIMES.filter(len), SHARES, st.data())
def test_the_tuples_of_highest_utility_stay(times: np.ndarray, share: float, data: st.DataObject) -> None:
    utility = np.array(data.draw(st.lists(st.floats(-5, 5), min_size=len(times), max_size=len(times))))
    kept = keep_useful(times, np.arange(len(times)), utility, share)
    assert kept.sum() == math.ceil(share * len(times))
    assert utility[kept].min(initial=math.inf) >= utility[~kept].max(initial=-math.inf)


def test_tuples_without_a_utility_are_dropped_first() -> None:
    kept = keep_useful(*np.arange(8).reshape(2, 4), np.array([math.nan, -math.inf, 1.0, math.nan]), 0.25)
    assert kept.tolist() == [False, False, True, False]


@given(
    TIMES,
    st.integers(1, 10**8),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=3),
)
@pytest.mark.filterwarnings("error")
def test_windows_are_complete_or_skipped(
    times: np.ndarray, length: int, spans: list[tuple[int, int]]
) -> None:
    skipped = tuple((first, first + more) for first, more in spans)
    kept = keep_windows(times, length, skipped)
    ends = np.array([end for ts in times.tolist() for end in (ts + 1, ts + length)], np.int64)
    whole = in_whole_windows(ends, skipped)
    for end, is_whole in zip(ends.tolist(), whole.tolist(), strict=True):
        held = (times >= end - length) & (times < end)
        if is_whole:
            assert kept[held].all()
