"""ACTIVE EXPIRATION against its definition, and the theft alarm (M36, M43, X12-X14)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.definition import RowAggregate, RowCall
from slicemill.aggregates.frames import Args, Inwindow, WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator


class ItemAlarm:
    """Aggregate of M43, with arguments (tag type,)."""

    def __init__(self, inwindow: Inwindow) -> None:
        self.inwindow = inwindow

    def initialize(self, args: Args) -> list[object]:
        if args == ("ap",) or ("ap",) in list(self.inwindow):
            self.inwindow.delete(lambda seen: seen == ("item",))
        return []

    iterate = initialize

    def expire(self, args: Args) -> list[object]:
        alarm = args == ("item",) and ("ap",) not in list(self.inwindow)
        return ["larceny alarm"] if alarm else []


ITEM_ALARM = RowAggregate("item_alarm", None, ItemAlarm)


def key_of(row: Row) -> object:
    return row[0]


def over(definition: RowAggregate, frame: WindowFrame, column: int = 1) -> FramedCall:
    return FramedCall(RowCall(definition, lambda row: (row[column],)), frame)


def run(calls: list[FramedCall], tuples: list[Timed], advance: bool = False) -> list[Timed]:
    operator = WindowAggregateOperator(calls)
    out: list[Timed] = []
    for tuple_ in tuples:
        if advance:
            out += operator.advance(tuple_.ts)
        out += operator.process(0, tuple_)
    return [*out, *operator.finish()]


@pytest.mark.parametrize(
    ("readings", "alarms"),
    [
        ([(0, "item"), (3, "ap")], []),
        ([(20, "item")], [25]),
        ([(40, "ap"), (44, "item")], []),
        ([(50, "item"), (56, "ap")], [55]),
        ([(0, "item"), (5, "ap")], []),
    ],
)
def test_g19_an_item_without_a_person_nearby_raises_an_alarm_when_it_expires(
    readings: list[tuple[int, str]], alarms: list[int]
) -> None:
    tuples = [Timed(ts, (f"tag{ts}", kind)) for ts, kind in readings]
    out = run([over(ITEM_ALARM, WindowFrame("RANGE", 5, active=True))], tuples)
    assert [t.ts for t in out] == alarms
    assert all(t.row == (f"tag{t.ts - 5}", "item", "larceny alarm") for t in out)


def test_arrivals_and_expiries_both_emit_rows() -> None:
    #  RANGE 5      0        3        5  8
    #  a arrives    [a                ]           avg 10, and 20 when a leaves at 5
    #  b arrives             [b          ]        avg 15, and nothing when b leaves an empty window (X13)
    tuples = [Timed(0, ("a", 10)), Timed(3, ("b", 20))]
    assert run([over(BUILTINS["avg"], WindowFrame("RANGE", 5, active=True))], tuples) == [
        Timed(0, ("a", 10, 10.0)),
        Timed(3, ("b", 20, 15.0)),
        Timed(5, ("a", 10, 20.0)),
    ]


def test_x14_an_arrival_at_the_expiry_time_precedes_the_expiry() -> None:
    tuples = [Timed(0, ("a", 10)), Timed(5, ("b", 20))]
    assert run([over(BUILTINS["count"], WindowFrame("RANGE", 5, active=True))], tuples) == [
        Timed(0, ("a", 10, 1)),
        Timed(5, ("b", 20, 2)),
        Timed(5, ("a", 10, 1)),
    ]


def test_an_expiry_is_emitted_when_time_has_passed_it() -> None:
    operator = WindowAggregateOperator([over(ITEM_ALARM, WindowFrame("RANGE", 5, active=True))])
    operator.process(0, Timed(20, ("tag", "item")))
    assert (operator.held_from(), operator.due()) == (25, 26)
    assert operator.advance(25) == []
    assert operator.advance(26) == [Timed(25, ("tag", "item", "larceny alarm"))]
    assert operator.due() is None and operator.held_from() is None


def test_calls_with_equal_extent_share_the_row_of_an_expiry() -> None:
    frame = WindowFrame("RANGE", 5, active=True)
    calls = [
        over(BUILTINS["sum"], frame),
        over(BUILTINS["count"], frame),
        over(BUILTINS["sum"], WindowFrame("RANGE", 1)),
    ]
    assert run(calls, [Timed(0, ("a", 10)), Timed(3, ("b", 20))]) == [
        Timed(0, ("a", 10, 10, 1, 10)),
        Timed(3, ("b", 20, 30, 2, 20)),
        Timed(5, ("a", 10, 20, 1, None)),
    ]


def test_expiries_of_different_extents_are_emitted_in_order_of_time() -> None:
    calls = [over(BUILTINS["count"], WindowFrame("RANGE", extent, active=True)) for extent in (7, 5)]
    out = run(calls, [Timed(0, ("a", 0)), Timed(1, ("b", 0)), Timed(2, ("c", 0))])
    assert [(t.ts, *t.row[::2]) for t in out[3:]] == [
        (5, "a", None),
        (6, "b", None),
        (7, "a", 2),
        (8, "b", 1),
    ]
    assert [t.row[3] for t in out[3:]] == [2, 1, None, None]


Function = Callable[[list], object]


def nulls_skipped(function: Function) -> Function:
    return lambda values: function([value for value in values if value is not None])


FUNCTIONS: dict[str, Function] = {
    "count": nulls_skipped(len),
    "count_distinct": nulls_skipped(lambda values: len(set(values))),
    "sum": nulls_skipped(lambda values: sum(values) if values else None),
    "max": nulls_skipped(lambda values: max(values, default=None)),
    "min": nulls_skipped(lambda values: min(values, default=None)),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}


def by_definition(tuples: list[Timed], extent: int, function: Function) -> list[tuple[Timed, bool]]:
    """Sort arrivals and expiries, and apply the function to the partition at each; True marks expiries."""
    events = sorted((t.ts + extent * leaves, leaves, n) for n, t in enumerate(tuples) for leaves in (0, 1))
    out, present = [], []
    for ts, leaves, n in events:
        if leaves:
            present.remove(n)
        else:
            present.append(n)
        key = tuples[n].row[0]
        left = [tuples[m].row[1] for m in present if tuples[m].row[0] == key]
        if left:
            values = function(left)
            out.append((Timed(ts, (*tuples[n].row, values)), bool(leaves)))
    return out


@st.composite
def streams(draw: st.DrawFn) -> list[Timed]:
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.none() | st.integers(-3, 3)), max_size=16
        )
    )
    tuples, ts = [], 0
    for gap, key, value in steps:
        ts += gap
        tuples.append(Timed(ts, (key, value)))
    return tuples


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=60)
@given(streams(), st.integers(0, 6), st.booleans())
def test_recomputed_windows_equal_the_definition_at_every_arrival_and_expiry(
    name: str, tuples: list[Timed], extent: int, advance: bool
) -> None:
    frame = WindowFrame("RANGE", extent, active=True, partition=key_of)
    out = run([over(replace(BUILTINS[name], window=None), frame)], tuples, advance)
    assert out == [timed for timed, _ in by_definition(tuples, extent, FUNCTIONS[name])]


@pytest.mark.parametrize("name", ["count", "count_distinct", "sum", "max", "min"])
@settings(max_examples=60)
@given(streams(), st.integers(0, 6))
def test_delta_versions_equal_the_definition_at_every_arrival_and_expiry(
    name: str, tuples: list[Timed], extent: int
) -> None:
    frame = WindowFrame("RANGE", extent, active=True, partition=key_of)
    expected = [timed for timed, _ in by_definition(tuples, extent, FUNCTIONS[name])]
    assert run([over(BUILTINS[name], frame)], tuples) == expected
