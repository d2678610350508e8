"""Several window calls in one operator: rows side by side, in timestamp order (M31-M37)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.definition import RowAggregate, RowCall
from slicemill.aggregates.frames import Args, WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.operators.row_step import DelayedOutput, RowOperator
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator


class Echo:
    """Aggregate that emits its argument twice, so that one tuple gives two rows."""

    def initialize(self, args: Args) -> list[object]:
        return [args[0], args[0]]

    iterate = initialize

    def terminate(self) -> list[object]:
        return []


ECHO = RowAggregate("echo", Echo)
NUMERIC = sorted(BUILTINS.keys() - {"listagg", "string_agg"})


def key_of(row: Row) -> object:
    return row[0]


def over(definition: RowAggregate, frame: WindowFrame) -> FramedCall:
    return FramedCall(RowCall(definition, lambda row: (row[1],)), frame)


def run(calls: list[FramedCall], tuples: list[Timed]) -> list[Timed]:
    operator = WindowAggregateOperator(calls)
    return [*(out for tuple_ in tuples for out in operator.process(0, tuple_)), *operator.finish()]


def test_a_call_without_a_result_for_a_tuple_has_null() -> None:
    calls = [
        over(BUILTINS["sum"], WindowFrame("ROWS", 1, slide=2)),
        over(BUILTINS["sum"], WindowFrame("ROWS", 2, slide=3)),
    ]
    tuples = [Timed(n, ("k", n)) for n in range(1, 7)]
    assert [t.row for t in run(calls, tuples)] == [
        ("k", 2, 3, None),
        ("k", 3, None, 6),
        ("k", 4, 7, None),
        ("k", 6, 11, 15),
    ]


def test_rows_wait_for_a_time_slide_and_are_emitted_in_order() -> None:
    #  SLIDE 10:   0 ... a@1 ... a@4 ... 10 ... a@12
    operator = WindowAggregateOperator(
        [
            over(BUILTINS["count"], WindowFrame("ROWS", 9)),
            over(BUILTINS["count"], WindowFrame("RANGE", 10, slide=10)),
        ]
    )
    assert operator.process(0, Timed(1, ("a", 0))) == []
    assert operator.process(0, Timed(4, ("a", 0))) == [Timed(1, ("a", 0, 1, None))]
    assert operator.process(0, Timed(12, ("a", 0))) == [Timed(4, ("a", 0, 2, 2))]
    assert operator.finish() == [Timed(12, ("a", 0, 3, 1))]


def test_a_call_with_several_values_emits_several_rows() -> None:
    calls = [over(ECHO, WindowFrame("ROWS", 3)), over(BUILTINS["count"], WindowFrame("ROWS", 3))]
    assert run(calls, [Timed(0, ("a", 7))]) == [Timed(0, ("a", 7, 7, 1)), Timed(0, ("a", 7, 7, None))]


frames = st.one_of(
    st.builds(
        WindowFrame,
        st.sampled_from(["ROWS", "RANGE"]),
        st.none() | st.integers(0, 5),
        partition=st.just(key_of),
    ),
    st.builds(
        WindowFrame,
        st.sampled_from(["ROWS", "RANGE"]),
        st.none() | st.integers(1, 5),
        slide=st.integers(1, 7),
        partition=st.just(key_of),
    ),
    st.builds(
        WindowFrame, st.just("RANGE"), st.integers(1, 5), active=st.just(True), partition=st.just(key_of)
    ),
)


@st.composite
def streams(draw: st.DrawFn) -> list[Timed]:
    """Draw rows that end with their number, which distinguishes them."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(-3, 3)), max_size=16)
    )
    tuples, ts = [], 0
    for n, (gap, key, value) in enumerate(steps):
        ts += gap
        tuples.append(Timed(ts, (key, value, n)))
    return tuples


@settings(max_examples=300)
@given(streams(), st.lists(st.tuples(st.sampled_from(NUMERIC), frames), min_size=1, max_size=3))
def test_several_calls_emit_the_results_of_single_calls_in_timestamp_order(
    tuples: list[Timed], named: list[tuple[str, WindowFrame]]
) -> None:
    calls = [over(BUILTINS[name], frame) for name, frame in named]
    together = run(calls, tuples)
    assert [t.ts for t in together] == sorted(t.ts for t in together)
    for column, call in enumerate(calls):
        alone = {(t.ts, t.row[:3]): t.row[3] for t in run([call], tuples)}
        for ts, row in together:
            assert row[3 + column] == alone.pop((ts, row[:3]), None)
        assert alone == {}


@settings(max_examples=200)
@given(streams(), st.lists(st.tuples(st.sampled_from(NUMERIC), frames), min_size=1, max_size=3))
def test_held_rows_are_emitted_exactly_at_their_due_time(
    tuples: list[Timed], named: list[tuple[str, WindowFrame]]
) -> None:
    operator = WindowAggregateOperator([over(BUILTINS[name], frame) for name, frame in named])
    out: list[Timed] = []
    for tuple_ in tuples:
        while (due := operator.due()) is not None and due <= tuple_.ts:
            floor = operator.held_from()
            assert operator.advance(due - 1) == []
            released = operator.advance(due)
            assert floor is not None and all(t.ts >= floor for t in released)
            out += released
            assert operator.due() != due
        out += operator.process(0, tuple_)
    assert [*out, *operator.finish()] == run([over(BUILTINS[name], frame) for name, frame in named], tuples)


def test_the_operator_waits_only_for_frames_that_need_time() -> None:
    plain = WindowAggregateOperator([over(BUILTINS["sum"], WindowFrame("ROWS", 2))])
    sliding = WindowAggregateOperator(
        [over(BUILTINS["sum"], WindowFrame("ROWS", 2)), over(ECHO, WindowFrame("RANGE", 2, slide=2))]
    )
    assert isinstance(plain, RowOperator) and isinstance(plain, DelayedOutput)
    assert (plain.inputs, plain.waits_for_time, sliding.waits_for_time) == (1, False, True)
