"""GROUP BY over a windowed stream, driven by time (P4, P5)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.definition import RowAggregate, RowCall
from slicemill.aggregates.frames import Args
from slicemill.aggregates.registry import BUILTINS
from slicemill.errors import SlicemillError
from slicemill.operators.row_step import DelayedOutput, RowOperator
from slicemill.types import Row, Timed
from slicemill_oracle.operators.windowed_group import ArrivalGroups, SlidingGroups


class Collect:
    """Collects all arguments as a tuple, which shows the content of a window."""

    def __init__(self) -> None:
        self.seen: Args = ()

    def initialize(self, args: Args) -> list[object]:
        self.seen += args
        return []

    iterate = initialize

    def terminate(self) -> list[object]:
        return [self.seen]


COLLECT = RowCall(RowAggregate("collect", Collect), lambda row: (row[1],))
COUNT = RowCall(BUILTINS["count"], lambda row: ())


def key_of(row: Row) -> Row:
    return (row[0],)


def every(operator: SlidingGroups, tuples: list[Timed], advance: bool = False) -> list[Timed]:
    out: list[Timed] = []
    for tuple_ in tuples:
        if advance:
            out += operator.advance(tuple_.ts)
        out += operator.process(0, tuple_)
    return [*out, *operator.finish()]


def by_definition(tuples: list[Timed], range_us: int, slide_us: int) -> list[Timed]:
    """Return every window that contains a tuple, with its groups by first appearance."""
    out = []
    if tuples:
        first, last = tuples[0].ts, tuples[-1].ts
        ends = range(first // slide_us * slide_us, last + range_us + slide_us + 1, slide_us)
        for end in ends:
            window = [t for t in tuples if end - range_us <= t.ts < end]
            for key in dict.fromkeys(t.row[0] for t in window):
                members = tuple(t.row[1] for t in window if t.row[0] == key)
                out.append(Timed(end, (key, members, len(members), end - range_us, end)))
    return out


@st.composite
def streams(draw: st.DrawFn) -> list[Timed]:
    steps = draw(st.lists(st.tuples(st.integers(0, 15), st.sampled_from("ab")), max_size=16))
    tuples, ts = [], draw(st.integers(-10, 10))
    for n, (gap, key) in enumerate(steps):
        ts += gap
        tuples.append(Timed(ts, (key, n)))
    return tuples


@settings(max_examples=300)
@given(streams(), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_every_window_with_a_tuple_emits_each_of_its_groups_once(
    tuples: list[Timed], range_us: int, slide_us: int, advance: bool
) -> None:
    operator = SlidingGroups([COLLECT, COUNT], key_of, range_us, slide_us)
    assert every(operator, tuples, advance) == by_definition(tuples, range_us, slide_us)


def test_g4_no_window_of_a_slow_stream_is_lost() -> None:
    #  RANGE 100 SLIDE 10, a tuple every 20:   0  20  40  60  80  100  120
    #  end 100   [0 .................. 80)
    #  end 110       [20 ................ 100)      due at 110, although no tuple comes then
    #  end 120       [20 ................ 100)
    operator = SlidingGroups([COUNT], lambda row: (), 100, 10)
    for ts in range(0, 101, 20):
        operator.process(0, Timed(ts, (ts,)))
    assert (operator.due(), operator.held_from()) == (110, 110)
    assert operator.process(0, Timed(120, (120,))) == [
        Timed(110, (5, 10, 110)),
        Timed(120, (5, 20, 120)),
    ]


def test_g4_the_clock_alone_releases_results() -> None:
    operator = SlidingGroups([COUNT], lambda row: (), 100, 10)
    operator.process(0, Timed(0, (0,)))
    assert operator.advance(9) == []
    assert operator.advance(20) == [Timed(10, (1, -90, 10)), Timed(20, (1, -80, 20))]
    assert [t.ts for t in operator.advance(500)] == list(range(30, 101, 10))
    assert operator.due() is None
    assert operator.finish() == []


def test_g3_every_tuple_is_in_range_divided_by_slide_windows() -> None:
    tuples = [Timed(n, ("k", n)) for n in range(300)]
    out = every(SlidingGroups([COLLECT], key_of, 100, 5), tuples)
    windows_of = Counter(n for t in out for n in t.row[1])
    assert set(windows_of.values()) == {20}
    out = every(SlidingGroups([COLLECT], key_of, 100, 7), tuples)
    assert set(Counter(n for t in out for n in t.row[1]).values()) == {14, 15}


def test_time_without_tuples_emits_no_results() -> None:
    operator = SlidingGroups([COUNT], key_of, 10, 1)
    assert operator.advance(10**15) == []
    operator.process(0, Timed(10**15, ("a", 1)))
    assert len(operator.advance(2 * 10**15)) == 10


def test_sliding_groups_wait_for_time() -> None:
    operator = SlidingGroups([COUNT], key_of, 10, 10)
    assert isinstance(operator, RowOperator) and isinstance(operator, DelayedOutput)
    assert (operator.inputs, operator.waits_for_time) == (1, True)


@pytest.mark.parametrize(("range_us", "slide_us"), [(0, 1), (1, 0)])
def test_a_window_or_slide_of_length_zero_is_rejected(range_us: int, slide_us: int) -> None:
    with pytest.raises(SlicemillError, match="longer than 0"):
        SlidingGroups([COUNT], key_of, range_us, slide_us)


def test_nans_are_one_group_and_both_zeros_are_one_group() -> None:
    tuples = [Timed(0, (value, 1)) for value in (float("nan"), -0.0, float("nan"), 0.0)]
    sliding = every(SlidingGroups([COUNT], key_of, 10, 10), tuples)
    assert repr([t.row[:2] for t in sliding]) == "[(nan, 2), (0.0, 2)]"
    arriving = ArrivalGroups([COUNT], key_of, rows=9)
    out = [made for t in tuples for made in arriving.process(0, t)]
    assert repr([t.row for t in out]) == "[(nan, 1), (0.0, 1), (nan, 2), (0.0, 2)]"
