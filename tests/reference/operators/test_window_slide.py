"""SLIDE: tumbling windows, panes and plain evaluation against one definition (M34, M35, X7)."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.definition import RowAggregate, RowCall
from slicemill.aggregates.frames import Args, WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator


class Median:
    """Holistic aggregate with only a base version; all other versions are derived."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def initialize(self, args: Args) -> list[object]:
        if args[0] is not None:
            self.seen.append(args[0])
        return []

    iterate = initialize

    def terminate(self) -> list[object]:
        return [statistics.median(self.seen) if self.seen else None]


class Concatenate:
    """String concatenation: algebraic, but not commutative."""

    def __init__(self) -> None:
        self.text = ""

    def initialize(self, args: Args) -> list[object]:
        self.text += str(args[0])
        return []

    iterate = initialize

    def terminate(self) -> list[object]:
        return [self.text]


MEDIAN = RowAggregate("median", Median)
CONCATENATE = RowAggregate("concatenate", Concatenate, algebraic=True)


def key_of(row: Row) -> object:
    return row[0]


def value_of(row: Row) -> Args:
    return (row[-1],)


def over(definition: RowAggregate, frame: WindowFrame) -> FramedCall:
    return FramedCall(RowCall(definition, value_of), frame)


def run(calls: list[FramedCall], tuples: list[Timed], advance: bool = False) -> list[Timed]:
    operator = WindowAggregateOperator(calls)
    out: list[Timed] = []
    for tuple_ in tuples:
        if advance:
            out += operator.advance(tuple_.ts)
        out += operator.process(0, tuple_)
    return [*out, *operator.finish()]


def sliding(tuples: list[Timed], frame: WindowFrame, function: Callable[[list], object]) -> list[Timed]:
    """Return for every yield tuple the function over the tuples of its partition in its window."""
    assert frame.slide is not None and frame.preceding is not None
    out = []
    for n, tuple_ in enumerate(tuples):
        mine = [t for t in tuples if t.row[0] == tuple_.row[0]]
        number = [i for i, t in enumerate(tuples) if t.row[0] == tuple_.row[0]].index(n)
        if frame.unit == "ROWS":
            if (number + 1) % frame.slide:
                continue
            window = mine[max(0, number - frame.preceding) : number + 1]
        else:
            slot = tuple_.ts // frame.slide
            if any(t.ts // frame.slide == slot for t in mine[number + 1 :]):
                continue
            end = (slot + 1) * frame.slide
            window = [t for t in mine if end - frame.preceding <= t.ts < end]
        out.append(Timed(tuple_.ts, (*tuple_.row, function([t.row[1] for t in window]))))
    return out


FUNCTIONS: dict[str, Callable[[list], object]] = {
    "count": len,
    "count_distinct": lambda values: len(set(values)),
    "sum": lambda values: sum(values) if values else None,
    "avg": lambda values: sum(values) / len(values) if values else None,
    "variance": lambda values: statistics.variance(values) if len(values) > 1 else None,
    "stddev": lambda values: statistics.stdev(values) if len(values) > 1 else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "median": lambda values: statistics.median(values) if values else None,
    "concatenate": lambda values: "".join(map(str, values)),
}


def nulls_skipped(function: Callable[[list], object]) -> Callable[[list], object]:
    return lambda values: function([value for value in values if value is not None])


@st.composite
def streams(draw: st.DrawFn, values: st.SearchStrategy[object]) -> list[Timed]:
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ab"), values), max_size=24))
    tuples, ts = [], draw(st.integers(-5, 5))
    for gap, key, value in steps:
        ts += gap
        tuples.append(Timed(ts, (key, value)))
    return tuples


frames = st.builds(
    WindowFrame,
    st.sampled_from(["ROWS", "RANGE"]),
    st.integers(1, 9),
    slide=st.integers(1, 12),
    partition=st.just(key_of),
)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=40)
@given(streams(st.none() | st.integers(-6, 6)), frames, st.booleans())
def test_every_strategy_gives_the_definition_of_a_sliding_window(
    name: str, tuples: list[Timed], frame: WindowFrame, advance: bool
) -> None:
    definition = {**BUILTINS, "median": MEDIAN, "concatenate": CONCATENATE}[name]
    keeps_nulls = name in ("concatenate", "first", "last")
    function = FUNCTIONS[name] if keeps_nulls else nulls_skipped(FUNCTIONS[name])
    expected = sliding(tuples, frame, function)
    out = run([over(definition, frame)], tuples, advance)
    assert [(t.ts, t.row[:2]) for t in out] == [(t.ts, t.row[:2]) for t in expected]
    assert [t.row[2] for t in out] == [
        pytest.approx(t.row[2]) if isinstance(t.row[2], float) else t.row[2] for t in expected
    ]


@settings(max_examples=150)
@given(streams(st.none() | st.floats()), frames)
def test_evaluation_in_panes_equals_plain_evaluation_bit_by_bit(
    tuples: list[Timed], frame: WindowFrame
) -> None:
    algebraic = [definition for definition in BUILTINS.values() if definition.algebraic]
    assert len(algebraic) == 16
    panes = run([over(definition, frame) for definition in algebraic], tuples)
    plain = run([over(replace(definition, algebraic=False), frame) for definition in algebraic], tuples)
    assert repr(panes) == repr(plain)


def bids(prices: range) -> list[Timed]:
    return [Timed(price, ("item", price)) for price in prices]


@pytest.mark.parametrize("algebraic", [True, False])
def test_g17_a_sum_over_50_bids_every_10_has_the_published_values(algebraic: bool) -> None:
    total = replace(BUILTINS["sum"], algebraic=algebraic)
    out = run([over(total, WindowFrame("ROWS", 49, slide=10))], bids(range(1, 101)))
    assert [t.ts for t in out] == list(range(10, 101, 10))
    assert [t.row[2] for t in out] == [55, 210, 465, 820, 1275, 1775, 2275, 2775, 3275, 3775]


def test_g17_the_panes_are_tumbling_windows_of_10() -> None:
    out = run([over(BUILTINS["sum"], WindowFrame("ROWS", 9, slide=10))], bids(range(1, 31)))
    assert [t.row[2] for t in out] == [55, 155, 255]


def test_g18_a_longer_slide_skips_tuples_outside_of_its_windows() -> None:
    #  1 ......... 18 [19 ... 28]  29 ....... 46 [47 ... 56]
    out = run([over(BUILTINS["sum"], WindowFrame("ROWS", 9, slide=28))], bids(range(1, 57)))
    assert [t.row[2] for t in out] == [235, 515]


def test_g3_range_100_slide_5_gives_a_result_over_100_tuples_after_every_5th() -> None:
    out = run([over(BUILTINS["min"], WindowFrame("ROWS", 99, slide=5))], bids(range(1, 1001)))
    assert [t.row[1] for t in out] == list(range(5, 1001, 5))
    assert [t.row[2] for t in out] == [max(1, n - 99) for n in range(5, 1001, 5)]


def test_g3_range_100_slide_100_gives_one_result_per_100_tuples() -> None:
    out = run([over(BUILTINS["count"], WindowFrame("ROWS", 99, slide=100))], bids(range(1, 1001)))
    assert [t.row[1:] for t in out] == [(n, 100) for n in range(100, 1001, 100)]


def test_the_result_of_a_time_slot_covers_the_range_before_its_end() -> None:
    #  RANGE 6 SLIDE 4     0 . . . 4 . . . 8 . . . 12
    #  tuples              a     b   c d           (none after)
    #  slot [0, 4)         a     b )                   yields with b
    #  slot [4, 8)           [   b   c d   )           yields with d: a at 0 is out, since 8 - 6 = 2
    tuples = [Timed(ts, ("k", name)) for ts, name in ((0, "a"), (3, "b"), (5, "c"), (6, "d"))]
    out = run([over(CONCATENATE, WindowFrame("RANGE", 6, slide=4))], tuples)
    assert out == [Timed(3, ("k", "b", "ab")), Timed(6, ("k", "d", "bcd"))]


def test_a_time_slot_is_emitted_when_time_reaches_its_end() -> None:
    operator = WindowAggregateOperator(
        [over(BUILTINS["count"], WindowFrame("RANGE", 4, slide=4, partition=key_of))]
    )
    assert operator.due() is None and operator.held_from() is None
    assert operator.process(0, Timed(1, ("a", 0))) == []
    assert operator.process(0, Timed(2, ("b", 0))) == []
    assert (operator.held_from(), operator.due()) == (1, 4)
    assert operator.advance(3) == []
    assert operator.advance(4) == [Timed(1, ("a", 0, 1)), Timed(2, ("b", 0, 1))]
    assert operator.due() is None and operator.held_from() is None
    assert operator.finish() == []


def test_a_tuple_replaced_in_its_slot_no_longer_delays_other_tuples() -> None:
    operator = WindowAggregateOperator(
        [over(BUILTINS["count"], WindowFrame("RANGE", 4, slide=4, partition=key_of))]
    )
    operator.process(0, Timed(0, ("a", 0)))
    operator.process(0, Timed(1, ("b", 0)))
    operator.process(0, Timed(2, ("a", 0)))
    assert operator.held_from() == 1


def test_a_tumbling_window_that_ends_after_its_only_tuple_can_be_empty() -> None:
    #  RANGE 2 SLIDE 10:   0 . . . . . . . [8 . )        the slot's only tuple is at 3
    tuples = [Timed(3, ("k", 7)), Timed(12, ("k", 7))]
    calls = [over(BUILTINS[name], WindowFrame("RANGE", 2, slide=10)) for name in ("sum", "count")]
    assert run(calls, tuples)[0] == Timed(3, ("k", 7, None, 0))


def test_an_unbounded_window_with_slide_emits_cumulative_results() -> None:
    calls = [over(BUILTINS["sum"], WindowFrame("ROWS", None, slide=3))]
    assert [t.row[1:] for t in run(calls, bids(range(1, 8)))] == [(3, 6), (6, 21)]
    calls = [over(BUILTINS["sum"], WindowFrame("RANGE", None, slide=3))]
    assert [t.row[1:] for t in run(calls, bids(range(1, 8)))] == [(2, 3), (5, 15), (7, 28)]
