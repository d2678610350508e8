"""Window joins against their definition on the whole input (M14, S3, P3)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.errors import SlicemillError
from slicemill.operators.join.rows import CountWindow, JoinByRows, JoinWindow, TimeWindow, UnboundedJoinWindow
from slicemill.operators.row_step import RowOperator
from slicemill.types import Row, Timed

Arrival = tuple[int, int, Row]  # timestamp, port, row


def run(join: JoinByRows, arrivals: list[Arrival], advance: bool = False) -> list[Timed]:
    out: list[Timed] = []
    for ts, port, row in arrivals:
        if advance:
            out += join.advance(ts)
        out += join.process(port, Timed(ts, row))
    return [*out, *join.finish()]


def in_window(window: JoinWindow, newer: int, older: int, arrivals: list[Arrival]) -> bool:
    """Whether arrival `older` is still in its input's window when `newer` comes."""
    if isinstance(window, TimeWindow):
        return arrivals[newer][0] - arrivals[older][0] < window.length_us
    if isinstance(window, CountWindow):
        same_input = [i for i in range(newer) if arrivals[i][1] == arrivals[older][1]]
        return window.rows > 0 and older in same_input[-window.rows :]
    return True


def nested_loops(windows: list[JoinWindow], arrivals: list[Arrival]) -> list[Timed]:
    """Every combination of one tuple per input whose older members the newest one finds in their windows."""
    found = []
    by_input = [[i for i, a in enumerate(arrivals) if a[1] == port] for port in range(len(windows))]
    for members in product(*by_input):
        newest = max(members)
        if all(
            i == newest or in_window(windows[port], newest, i, arrivals) for port, i in enumerate(members)
        ):
            row = tuple(value for i in members for value in arrivals[i][2])
            if keys_agree(row):
                found.append((newest, members, Timed(arrivals[newest][0], row)))
    return [timed for _, _, timed in sorted(found)]


def keys_agree(row: Row) -> bool:
    return len(set(row[::2])) == 1


def anything(row: Row) -> bool:
    return True


windows_strategy = st.lists(
    st.one_of(
        st.builds(TimeWindow, st.integers(0, 6)),
        st.builds(CountWindow, st.integers(0, 3)),
        st.just(UnboundedJoinWindow()),
    ),
    min_size=2,
    max_size=3,
)


@st.composite
def joins(draw: st.DrawFn) -> tuple[list[JoinWindow], list[Arrival]]:
    windows = draw(windows_strategy)
    events = draw(
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(0, len(windows) - 1), st.integers(0, 1)), max_size=14
        )
    )
    ordered = sorted(events, key=lambda event: event[:2])
    return windows, [(ts, port, (key, f"{port}.{i}")) for i, (ts, port, key) in enumerate(ordered)]


@settings(max_examples=300)
@given(joins(), st.booleans())
def test_a_join_gives_the_nested_loop_definition_oldest_partners_first(
    case: tuple[list[JoinWindow], list[Arrival]], advance: bool
) -> None:
    windows, arrivals = case
    assert run(JoinByRows(windows, keys_agree), arrivals, advance) == nested_loops(windows, arrivals)


def test_a_time_window_is_half_open() -> None:
    #  b at   0     1     2     3          b's window: length 3
    #  a at   .     .     .     3          ages 3, 2, 1, 0: the first one is out
    arrivals: list[Arrival] = [(ts, 0, (f"b{ts}",)) for ts in range(4)] + [(3, 1, ("a3",))]
    join = JoinByRows([TimeWindow(3), TimeWindow(3)], anything)
    assert run(join, arrivals) == [Timed(3, (b, "a3")) for b in ("b1", "b2", "b3")]


def test_the_binary_trace_of_the_state_slice_spec_comes_out_pair_by_pair() -> None:
    names = ["a1", "b1", "a2", "b2", "b3", "a3", "a4", "b4"]
    times = [1, 2, 3, 4, 5, 6, 7, 9]
    arrivals: list[Arrival] = [
        (ts, 0 if name[0] == "a" else 1, (name,)) for ts, name in zip(times, names, strict=True)
    ]
    pairs = {
        2: [("a1", "b1")],
        3: [("a2", "b1")],
        4: [("a1", "b2"), ("a2", "b2")],
        5: [("a2", "b3")],
        6: [("a3", "b2"), ("a3", "b3")],
        7: [("a4", "b2"), ("a4", "b3")],
        9: [("a3", "b4"), ("a4", "b4")],
    }
    join = JoinByRows([TimeWindow(4), TimeWindow(4)], anything)
    assert run(join, arrivals) == [Timed(ts, pair) for ts, at in pairs.items() for pair in at]


def test_the_results_of_one_arrival_vary_the_first_input_slowest() -> None:
    arrivals: list[Arrival] = [
        (0, 0, ("a1",)),
        (0, 0, ("a2",)),
        (1, 2, ("c1",)),
        (2, 2, ("c2",)),
        (3, 1, ("b",)),
    ]
    join = JoinByRows([UnboundedJoinWindow()] * 3, anything)
    assert [timed.row for timed in run(join, arrivals)] == [
        ("a1", "b", "c1"),
        ("a1", "b", "c2"),
        ("a2", "b", "c1"),
        ("a2", "b", "c2"),
    ]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 10), max_size=8).map(sorted), st.integers(1, 6))
def test_in_a_self_join_every_ordered_pair_within_the_window_appears_once(
    times: list[int], length: int
) -> None:
    stream = [(ts, (f"t{i}",)) for i, ts in enumerate(times)]
    arrivals: list[Arrival] = sorted(
        ((ts, port, row) for port in (0, 1) for ts, row in stream), key=lambda arrival: arrival[:2]
    )
    pairs = [timed.row for timed in run(JoinByRows([TimeWindow(length)] * 2, anything), arrivals)]
    assert sorted(map(str, pairs)) == sorted(
        str(left + right) for t, left in stream for u, right in stream if abs(t - u) < length
    )


@settings(max_examples=100)
@given(joins())
def test_a_binary_join_is_the_union_of_its_two_one_way_joins(
    case: tuple[list[JoinWindow], list[Arrival]],
) -> None:
    windows, arrivals = case[0][:2], [arrival for arrival in case[1] if arrival[1] < 2]
    nothing = CountWindow(0)
    both = run(JoinByRows(windows, keys_agree), arrivals)
    left = run(JoinByRows([windows[0], nothing], keys_agree), arrivals)
    right = run(JoinByRows([nothing, windows[1]], keys_agree), arrivals)
    assert sorted(both) == sorted(left + right)


def test_time_alone_empties_the_windows() -> None:
    join = JoinByRows([TimeWindow(5), TimeWindow(5)], anything)
    join.process(0, Timed(1, ("a",)))
    assert join.advance(6) == ()
    assert join.process(1, Timed(6, ("b",))) == []


def test_it_is_an_operator_that_waits_for_time() -> None:
    join = JoinByRows([TimeWindow(5)] * 3, anything)
    assert isinstance(join, RowOperator)
    assert (join.inputs, join.waits_for_time) == (3, True)


def test_a_join_of_one_input_is_refused() -> None:
    with pytest.raises(SlicemillError, match="two or more inputs"):
        JoinByRows([TimeWindow(5)], anything)
