"""When members are due, what they still need, and which tuples wait: one by one in plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.panes.values import call
from slicemill import types as t
from slicemill.operators.window.pane_answers import pane_aggregate_of
from slicemill.operators.window.pane_state import MemberState
from slicemill.operators.window.panes import GroupWindows, OverWindows, first_end_after
from slicemill.operators.window.spans import cut
from slicemill.operators.window.spec import edge_grids
from slicemill.time import BEGINNING, END
from slicemill.types import Column
from support.stored import stored

numbers = st.integers(1, 12)


def groups(length: int, slide: int) -> GroupWindows:
    return GroupWindows(length, slide, (), {}, ())


def yields(slide: int, *lengths: int) -> OverWindows:
    figure = pane_aggregate_of(call("sum", t.BIGINT, "v"))
    assert figure is not None
    figures = {f"c{n}": (length, figure) for n, length in enumerate(lengths)}
    columns = (Column("v", t.BIGINT), *(Column(name, t.BIGINT) for name in figures))
    return OverWindows(slide, figures, columns)


@given(st.integers(-50, 50), numbers)
def test_the_first_end_after_a_time(ts: int, slide: int) -> None:
    assert first_end_after(ts, slide) == next(end for end in range(ts + 1, ts + 50) if end % slide == 0)


def test_no_window_ends_later_than_time() -> None:
    assert first_end_after(END, 10) == first_end_after(END - 1, 10) == END


@given(st.lists(st.integers(-50, 50), max_size=10), numbers, numbers)
def test_times_that_windows_hold(times: list[int], length: int, slide: int) -> None:
    ends = range(-120, 121)
    expected = [any(e % slide == 0 and e - length <= ts < e for e in ends) for ts in times]
    assert groups(length, slide).holds(np.array(times, np.int64)).tolist() == expected
    assert yields(slide, length).holds(np.array(times, np.int64)).all()


@settings(max_examples=80)
@given(
    st.lists(st.integers(-20, 40), min_size=1, max_size=6).map(sorted),
    numbers,
    numbers,
    st.integers(-30, 60),
)
@example([0], 3, 10, -5)  # a tuple that no window holds
@example([0, 7], 3, 10, 5)
def test_groups_are_due_before_any_window_with_tuples_ends_and_need_its_panes(
    times: list[int], length: int, slide: int, closed: int
) -> None:
    member = groups(length, slide)
    starts = cut(np.array(times), edge_grids([(length, slide)]), BEGINNING)[0].tolist()
    state = MemberState(None, closed, starts[0], starts[-1])
    to_come = [
        (end, [start for start in starts if end - length <= start < end])
        for end in range(closed + 1, 100)
        if end % slide == 0
    ]
    to_come = [(end, inside) for end, inside in to_come if inside]
    due, since = member.due(state), member.since(state)
    assert due == member.held(state)
    if to_come:
        assert due is not None and closed < due <= to_come[0][0]
        assert since <= min(inside[0] for _, inside in to_come)
    # What it lets go is in no window to come.
    assert all(start >= since for _, inside in to_come for start in inside)
    if due is None:
        assert not to_come


def test_a_member_without_tuples_is_not_due_and_one_that_closed_nothing_needs_all() -> None:
    new = MemberState(None)
    assert groups(10, 5).due(new) is None and groups(10, 5).since(new) == BEGINNING
    assert yields(5, 10).due(new) is None is yields(5, 10).held(new) and yields(5, 10).since(new) == BEGINNING
    assert yields(5, 10, 30).length == 30 and yields(5, 10, 30).since(MemberState(None, closed=12)) == 15 - 30


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-9, 30), st.integers(0, 2)), max_size=14).map(
        lambda found: sorted(found, key=lambda row: row[0])
    ),
    numbers,
    st.sets(st.integers(1, 13), max_size=3),
)
@example([(0, 0), (0, 0), (4, 0), (5, 0)], 5, {1, 2})
def test_the_last_tuple_of_each_key_and_slot_waits_wherever_runs_are_cut(
    rows: list[tuple[int, int]], slide: int, cuts: set[int]
) -> None:
    member, state = yields(slide, 10), MemberState(None)
    borders = sorted({0, len(rows), *(c for c in cuts if c < len(rows))})
    for first, last in pairwise(borders):
        part = rows[first:last]
        seqs = list(range(first, last))
        table = pa.table(
            {
                "_ts": pa.array([ts for ts, _ in part], pa.int64()),
                "_seq": pa.array(seqs, pa.int64()),
                "v": pa.array(seqs, pa.int64()),
            }
        )
        member.take(state, table, np.array([key for _, key in part], np.int64))
        state = stored(state)
    latest: dict[tuple[int, int], int] = {}
    for seq, (ts, key) in enumerate(rows):
        latest[key, first_end_after(ts, slide)] = seq
    if not rows:
        assert state.waiting is None
        return
    assert state.waiting is not None
    assert state.waiting.column("_seq").to_pylist() == sorted(latest.values())
    assert state.waiting.column("v").to_pylist() == sorted(latest.values())
    assert member.due(state) == min(end for _, end in latest)
    assert member.held(state) == rows[min(latest.values())][0]


def test_a_run_without_tuples_of_a_member_leaves_nothing_waiting() -> None:
    state = MemberState(None)
    none = pa.table({name: pa.array([], pa.int64()) for name in ("_ts", "_seq", "v")})
    yields(5, 10).take(state, none, np.empty(0, np.int64))
    assert state.waiting is None


@pytest.mark.parametrize(("length", "slide"), [(10, 5), (3, 10)])
def test_members_name_the_partials_of_all_their_figures(length: int, slide: int) -> None:
    figure = pane_aggregate_of(call("avg", t.BIGINT, "v"))
    assert figure is not None
    member = GroupWindows(length, slide, (), {"a": figure, "b": figure}, ())
    assert [partial.name for partial in member.partials] == [p.name for p in figure.partials] * 2
    assert len(yields(slide, length).partials) == 2
