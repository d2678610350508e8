"""Panes are cut where a window begins or ends, and nowhere else."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.operators.window.spans import cut
from slicemill.operators.window.spec import edge_grids

windows = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=4)
times = st.lists(st.integers(-50, 50), max_size=20).map(sorted)


@given(windows, times)
@example([(7, 10)], [-8, -7, -1, 0, 2, 3, 9, 10])  # a slide that is longer than the range
@example([(1, 1)], [])
def test_a_pane_lies_in_a_window_as_a_whole_or_not_at_all(
    windows: list[tuple[int, int]], times: list[int]
) -> None:
    begins, borders = cut(np.array(times, np.int64), edge_grids(windows), -1000)
    edges = {e for w, s in windows for k in range(-90, 91) for e in (k * s, k * s - w)}
    assert borders[0] == 0 and borders[-1] == len(times) and len(borders) == len(begins) + 1
    for number, begin in enumerate(begins.tolist()):
        own = times[borders[number] : borders[number + 1]]
        assert begin == max(edge for edge in edges if edge <= own[0])
        assert not any(begin < edge <= own[-1] for edge in edges)
    assert (np.diff(begins) > 0).all()


@given(windows, windows, times, st.integers(0, 20))
def test_panes_begin_later_and_later_also_where_grids_change(
    before: list[tuple[int, int]], after: list[tuple[int, int]], times: list[int], first: int
) -> None:
    """The last known pane goes on where a coarser grid would have begun its own earlier."""
    head, tail = np.array(times[:first], np.int64), np.array(times[first:], np.int64)
    old, _ = cut(head, edge_grids(before), -1000)
    newest = int(old[-1]) if len(old) else -1000
    new, borders = cut(tail, edge_grids(after), newest)
    assert (np.diff(np.concatenate((old, new))) >= 0).all()
    # No edge of the new windows lies between the beginning of a pane and its tuples.
    edges = {e for w, s in after for k in range(-90, 91) for e in (k * s, k * s - w)}
    for number, begin in enumerate(new.tolist()):
        own = tail[borders[number] : borders[number + 1]].tolist()
        assert begin <= own[0] and not any(begin < edge <= own[-1] for edge in edges)


def test_a_grid_that_becomes_coarser_goes_on_from_the_last_pane() -> None:
    assert cut(np.array([6, 11]), ((10, 0),), 5)[0].tolist() == [5, 10]
