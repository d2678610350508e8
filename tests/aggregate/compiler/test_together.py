"""Models that share a window give the same bits as alone, and store equal core statistics once."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregate.compiler.by_reference import ByReference
from slicemill.aggregates.calls import Tuples, Uda
from slicemill.aggregates.frames import frame_over
from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Call, ColumnRef, Expr
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.calls import ModelCall, can_share_window, joint_state
from slicemill.extensions.models.compiler.together import ModelCalls
from slicemill.extensions.models.model import expression
from slicemill.functions.vectors import from_values, to_values
from slicemill.time import END
from slicemill.types import DOUBLE, TIMESTAMP
from slicemill_lab.model.reference.catalogue import model
from support.stored import stored

SECOND = 1_000_000
A, B, AT = ColumnRef("a", DOUBLE), ColumnRef("b", DOUBLE), ColumnRef("at", TIMESTAMP)
TWICE = Call("+", (A, A), DOUBLE)
PLACES: dict[Expr, int] = {A: 2, B: 3, AT: 0}
ASKED = [
    ModelCall(expression("mean(x)"), (A,)),
    ModelCall(expression("variance(x)"), (A,)),
    ModelCall(expression("variance(x)"), (B,)),
    ModelCall(expression("slope(x, y)"), (A, B)),
    ModelCall(expression("sum(x*y*z)"), (B, A, A)),
    ModelCall(expression("correlation(x, y)"), (B, A)),
    ModelCall(expression("sum(log(x)) + n"), (A,)),
    ModelCall(expression("max(x) + median(x)"), (B,)),
    ModelCall(expression("max(x) - argmax(y)"), (B, A)),
    ModelCall(expression("prod(x) + gcd(floor(x))"), (A,)),
    ModelCall(expression("sum(0.5^j*x) + sum(cos(i)*x)"), (A,)),
    ModelCall(expression("sum(0.5^i*x) + sum(x)"), (A,)),
    ModelCall(expression("let m = mean(x) in sum(abs(x - m))"), (A,)),
    ModelCall(expression("let m = mean(x) in sum(abs(x - m))"), (B,)),
    ModelCall(expression("sum(x*0.5^age) + n"), (A, AT)),
    ModelCall(expression("sum(x) + n", nulls="poison"), (A,)),
    ModelCall(expression("all(x > 0)"), (A,)),
    ModelCall(expression("sum(x^2)"), (TWICE,)),
]
WINDOWS = [
    Window(FrameUnit.ROWS, 3),
    Window(FrameUnit.RANGE, 4 * SECOND),
    Window(FrameUnit.ROWS, None),
    Window(FrameUnit.ROWS, 5, 2),
    Window(FrameUnit.RANGE, 6 * SECOND, 2 * SECOND),
    Window(FrameUnit.RANGE, 2 * SECOND, 2 * SECOND),
]
# Mostly numbers: the NULLs that distinguish models arrive late or never.
NUMBERS = st.sampled_from([0.1, 1.0, 2.5, -3.0, 7.25, 1e4, 0.3, 0.0, 5.5, 1e200, None, math.nan, math.inf])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), NUMBERS, NUMBERS), min_size=1, max_size=20)


def timed(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found, ts = [], 0
    for gap, *values in rows:
        ts += gap * SECOND
        found.append((ts, *values))
    return found


def tuples(rows: Sequence[tuple[Any, ...]], arguments: Sequence[Expr]) -> Tuples:
    def value(row: tuple[Any, ...], argument: Expr) -> Any:
        if argument == TWICE:
            return None if row[2] is None else row[2] + row[2]
        return row[PLACES[argument]]

    vectors = [from_values([value(row, each) for row in rows], each.type) for each in arguments]
    partitions, ts = (
        np.array([row[index] for row in rows], dtype) for index, dtype in ((1, "i4"), (0, "i8"))
    )
    return Tuples(vectors, partitions, ts)


def answers(uda: Uda, state: Any, given_: Tuples, complete: int | None) -> list[list[Any]]:
    found = uda.run(state, given_, complete)
    numbers = found.numbers.tolist()
    return [list(zip(numbers, map(repr, to_values(c, len(numbers))), strict=True)) for c in found.columns]


@cache
def one_call(asked: ModelCall, window: Window, form: str) -> ModelCalls:
    return ModelCalls([asked], frame_over(window), form=form)


def alone(asked: ModelCall, window: Window, rows: Sequence[tuple[Any, ...]], form: str = PYTHON) -> list[Any]:
    calls = one_call(asked, window, form)
    return answers(calls.uda, calls.uda.start(), tuples(rows, calls.arguments), END)[0]


def together(
    asked: Sequence[ModelCall],
    window: Window,
    rows: Sequence[tuple[Any, ...]],
    cuts: Sequence[int],
    gone: Sequence[ModelCall] = (),
    form: str = PYTHON,
) -> dict[ModelCall, list[Any]]:
    """Run the calls together; store the state at each cut, and drop the calls of `gone` at the last cut."""
    calls = ModelCalls(asked, frame_over(window), form=form)
    state, found = calls.uda.start(), {each: [] for each in asked}
    for begin, end in pairwise([0, *sorted(cuts), len(rows)]):
        state = stored(state)
        if end == len(rows) and gone:
            calls = calls.only([each for each in asked if each not in gone], state)
        new = answers(
            calls.uda, state, tuples(rows[begin:end], calls.arguments), END if end == len(rows) else None
        )
        for each, column in zip(calls.asked, new, strict=True):
            found[each] += column
    return found


@settings(max_examples=40)
@given(
    asked=st.lists(st.sampled_from(ASKED), min_size=2, max_size=4, unique=True),
    window=st.sampled_from(WINDOWS),
    rows=ROWS,
    cuts=st.lists(st.integers(0, 20), min_size=1, max_size=2),
    leaving=st.integers(0, 3),
)
@example([ASKED[0], ASKED[1]], WINDOWS[4], [(0, 0, 0.1, 0.1)] * 11 + [(0, 1, 0.1, 0.1)], [11], 1)
@example([ASKED[0], ASKED[3]], WINDOWS[0], [(1, 0, 1.0, 2.0)] * 6 + [(1, 0, 2.0, None)] * 2, [3], 0)
@example(
    [ASKED[0], ASKED[1]], WINDOWS[0], [(1, 0, 1.0, 2.0), (1, 0, 1e200, 1.0)] + [(1, 0, 2.0, 1.0)] * 6, [2], 1
)
def test_models_with_a_shared_window_give_the_results_of_separate_models(
    asked: list[ModelCall], window: Window, rows: list[Any], cuts: list[int], leaving: int
) -> None:
    all_rows = timed(rows)
    cuts = [min(cut, len(rows)) for cut in cuts]
    gone = asked[: min(leaving, len(asked) - 1)]
    found = together(asked, window, all_rows, cuts, gone)
    for each in asked:
        expected = alone(each, window, all_rows)
        assert found[each] == (expected[: len(found[each])] if each in gone else expected)


@pytest.mark.slow_cpu
def test_machine_code_separates_shared_models_from_the_first_null_on() -> None:
    pick = random.Random(7)
    asked = [ASKED[0], ASKED[7]]
    rows = timed([(1, pick.randrange(2), *(pick.choice([0.1, 2.5, 7.0]) for _ in "ab")) for _ in range(40)])
    rows[25:] = [(ts, p, a if ts % 3 else None, b if ts % 4 else None) for ts, p, a, b in rows[25:]]
    found = together(asked, WINDOWS[0], rows, [11, 30], form=MACHINE)
    for each in asked:
        assert found[each] == alone(each, WINDOWS[0], rows)


def test_shared_state_stores_each_core_statistic_once() -> None:
    names = ("mean", "variance", "skewness", "slope", "correlation", "covariance", "intercept", "r2")
    asked = [ModelCall(model(name), (A, B)[: len(model(name).parameters)]) for name in names]
    calls = ModelCalls(asked, frame_over(WINDOWS[0]), form=PYTHON)
    sums = [name for name in calls.uda.start().arrays["S"].dtype.names if re.fullmatch(r"h\d+", name)]
    # n is counted in any case.
    assert len(sums) + 1 == len(joint_state(asked).cores) == 7
    assert len(joint_state(asked).cores) < sum(len(each.model.cores) for each in asked) / 4


def test_state_of_removed_models_is_dropped() -> None:
    calls = ModelCalls([ASKED[0], ASKED[7]], frame_over(WINDOWS[0]), form=PYTHON)
    state = calls.uda.start()
    answers(calls.uda, state, tuples(timed([(1, 0, 1.0, 2.0)] * 5), calls.arguments), None)
    assert any("deque" in name for name in state.arrays)
    calls.only(ASKED[:1], state)
    assert not any("deque" in name or "below" in name for name in state.arrays)


@pytest.mark.parametrize("text", ["variance(x)", "sum(x^2) - n", "max(x^2)", "sum(i*x^3)", "sum(x)"])
def test_a_number_whose_square_overflows_has_no_effect_after_it_left_the_window(text: str) -> None:
    """While the number is in the window the result is NULL, because the exact value overflows."""
    wanted = expression(text)
    rows = timed([(1, 0, value, None) for value in (1.0, 2.0, 1e200, 4.0, 6.0, 5.0, 7.0, 3.0)])
    catalog = with_model("m", wanted, Catalog())
    window = Window(FrameUnit.ROWS, 2)
    call = WindowCall("m", (A,), False, (), window, catalog.aggregates("m")[0].returns.columns)
    reference = ByReference(call, catalog)
    expected = answers(reference, reference.start(), tuples(rows, (A,)), END)[0]
    assert alone(ModelCall(wanted, (A,)), window, rows) == expected


def test_models_with_age_share_a_window_only_if_their_time_argument_is_equal() -> None:
    fading = expression("sum(x*0.5^age)")
    other = ColumnRef("other", TIMESTAMP)
    assert can_share_window([ModelCall(fading, (A, AT)), ASKED[0]], ModelCall(fading, (B, AT)))
    assert not can_share_window([ModelCall(fading, (A, AT))], ModelCall(fading, (A, other)))
