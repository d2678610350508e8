"""Windows as spans of entries, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.operators.window import spans
from slicemill.operators.window.spans import spans_at, spans_of

starts = st.lists(st.sets(st.integers(-20, 40), min_size=1, max_size=6).map(sorted), min_size=1, max_size=3)


@settings(max_examples=60)
@given(
    starts,
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(-30, 30),
    st.integers(-30, 60),
    st.sampled_from([3, 1 << 20]),
)
def test_every_window_with_an_entry_is_found_once_in_order(
    keys: list[list[int]], length: int, slide: int, after: int, until: int, at_once: int
) -> None:
    begin = np.cumsum([0, *map(len, keys)])
    start = np.array([s for key in keys for s in key])
    before, spans._ENDS_AT_ONCE = spans._ENDS_AT_ONCE, at_once
    try:
        found = spans_of(begin, start, length, slide, after, until)
    finally:
        spans._ENDS_AT_ONCE = before
    expected = []
    for end in range(-60, 120):
        if end % slide or not after < end <= until:
            continue
        for rank, key in enumerate(keys):
            inside = [index for index, s in enumerate(key) if end - length <= s < end]
            if inside:
                expected.append((end, rank, begin[rank] + inside[0], begin[rank] + inside[-1] + 1))
    columns = (found.end, found.rank, found.lo, found.hi)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == expected
    one_by_one = spans_at(begin, start, length, found.rank.astype(np.int64), found.end)
    assert one_by_one.lo.tolist() == found.lo.tolist() and one_by_one.hi.tolist() == found.hi.tolist()


def test_a_key_without_entries_has_empty_windows() -> None:
    found = spans_at(np.array([0, 1]), np.array([5]), 10, np.array([-1, 0]), np.array([10, 10]))
    assert (found.lo == found.hi).tolist() == [True, False] and found.rank.tolist() == [0, 0]


def test_without_entries_there_are_no_windows() -> None:
    assert len(spans_of(np.zeros(1, np.int64), np.empty(0, np.int64), 10, 10, -(2**63) + 1, 2**63 - 1)) == 0


def test_spans_that_are_taken_keep_their_columns_together() -> None:
    found = spans_of(np.array([0, 2, 3]), np.array([0, 10, 20]), 20, 10, 0, 30).take(np.array([3, 0, 0]))
    assert found.end.tolist() == [30, 10, 10] and found.rank.tolist() == [1, 0, 0]
    assert found.lo.tolist() == [2, 0, 0] and found.hi.tolist() == [3, 1, 1]


def test_a_silence_of_a_century_is_passed_over() -> None:
    """Windows end at every microsecond; those that hold nothing are not looked at one by one."""
    century = 36525 * 86_400_000_000
    found = spans_of(np.array([0, 2, 3]), np.array([0, century, 5]), 3, 1, -(2**63) + 1, 2**63 - 1)
    held = [(0, 0), (century, 0), (5, 1)]
    assert list(zip(found.end.tolist(), found.rank.tolist(), strict=True)) == sorted(
        (start + n, rank) for start, rank in held for n in (1, 2, 3)
    )
    assert (found.hi - found.lo == 1).all()
    assert len(spans_of(np.array([0, 1]), np.array([century]), 3, 1, 0, century)) == 0
