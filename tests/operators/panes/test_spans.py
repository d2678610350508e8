"""Windows as spans of entries, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.operators.panes import spans
from slicemill.operators.panes.edges import cut
from slicemill.operators.panes.grids import edge_grids
from slicemill.operators.panes.spans import spans_at, spans_of

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
            inside = [place for place, s in enumerate(key) if end - length <= s < end]
            if inside:
                expected.append((end, rank, begin[rank] + inside[0], begin[rank] + inside[-1] + 1))
    columns = (found.end, found.rank, found.lo, found.hi)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == expected
    one_by_one = spans_at(begin, start, length, found.rank.astype(np.int64), found.end)
    assert one_by_one.lo.tolist() == found.lo.tolist() and one_by_one.hi.tolist() == found.hi.tolist()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=4),
    st.lists(st.integers(-50, 50), min_size=1).map(sorted),
)
def test_a_pane_lies_in_a_window_as_a_whole_or_not_at_all(
    windows: list[tuple[int, int]], times: list[int]
) -> None:
    begins, borders = cut(np.array(times), edge_grids(windows), -1000)
    edges = {e for w, s in windows for k in range(-60, 61) for e in (k * s, k * s - w)}
    for number, begin in enumerate(begins.tolist()):
        own = times[borders[number] : borders[number + 1]]
        assert begin == max(edge for edge in edges if edge <= own[0])
        assert not any(begin < edge <= own[-1] for edge in edges)


def test_a_grid_that_becomes_coarser_goes_on_from_the_last_pane() -> None:
    assert cut(np.array([6, 11]), ((10, 0),), 5)[0].tolist() == [5, 10]
