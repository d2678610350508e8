"""The built-in aggregates: NULLs, numbers, and the values that max stores for its window (M33, X6)."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.aggregates.definition import Returned, RowCall, evaluate
from slicemill.aggregates.frames import Inwindow, WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.catalog import builtin_aggregates as esl_builtins
from slicemill.types import Timed
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator


def over(name: str, *values: object) -> Returned:
    base = BUILTINS[name].base
    assert base is not None
    return evaluate(base, [(value,) for value in values])


@pytest.mark.parametrize("name", BUILTINS)
def test_aggregates_over_only_nulls_are_0_for_counts_empty_for_lists_and_null_otherwise(name: str) -> None:
    lists = name.startswith(("collect", "array_agg"))
    nothing: object = 0 if name.startswith("count") or name == "approx_count_if" else () if lists else None
    assert over(name) == over(name, None, None) == [nothing]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("count", 4),
        ("count_distinct", 3),
        ("sum", 14),
        ("avg", 3.5),
        ("mean", 3.5),
        # Deviations -0.5, 3.5, -2.5, -0.5, so that a_2 = 4 * 19, a_3 = 16 * 27 and a_4 = 64 * 189.25.
        ("skewness", pytest.approx(432 / 76**1.5)),
        ("kurtosis", pytest.approx(12112 / 76**2 - 3)),
        ("variance", pytest.approx(19 / 3)),
        ("stddev", pytest.approx(math.sqrt(19 / 3))),
        ("var_samp", pytest.approx(19 / 3)),
        ("var_pop", 4.75),
        ("stddev_samp", pytest.approx(math.sqrt(19 / 3))),
        ("stddev_pop", pytest.approx(math.sqrt(4.75))),
        ("median", 3.0),
        ("min", 1),
        ("max", 7),
    ],
)
def test_nulls_are_skipped(name: str, result: object) -> None:
    assert over(name, None, 3, 7, None, 1, 3, None) == [result]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_skewness_and_kurtosis_of_non_finite_numbers_are_nan(broken: float) -> None:
    for name in ("skewness", "kurtosis"):
        for values in ([broken], [1.0, broken, 3.0], [None, broken, broken]):
            (found,) = over(name, *values)
            assert math.isnan(found)
    assert over("mean", 1.0, broken) == [pytest.approx(broken, nan_ok=True)]


@pytest.mark.parametrize("name", ["skewness", "kurtosis"])
def test_skewness_and_kurtosis_of_equal_values_are_null(name: str) -> None:
    assert over(name, 5) == over(name, 0.1, 0.1, 0.1) == over(name, 0.0, -0.0, None) == [None]


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), min_size=2, max_size=6)
)
def test_skewness_and_kurtosis_are_rounded_once(values: list[float]) -> None:
    exact = [Fraction(value) for value in values]
    centre = sum(exact) / len(exact)
    m2, m3, m4 = (sum((value - centre) ** degree for value in exact) / len(exact) for degree in (2, 3, 4))
    (skew,), (kurt,) = over("skewness", *values), over("kurtosis", *values)
    if not m2:
        assert skew is kurt is None
        return
    assert kurt == float(m4 / m2**2 - 3) and math.copysign(1, skew) == (1 if m3 >= 0 else -1)
    size = abs(skew)
    below, above = (
        (Fraction(size) + Fraction(math.nextafter(size, towards))) / 2 for towards in (0, math.inf)
    )
    assert below**2 <= m3**2 / m2**3 <= above**2


def test_every_declared_aggregate_has_an_implementation() -> None:
    assert set(esl_builtins.BUILTINS) <= set(BUILTINS)
    for name, declared in esl_builtins.BUILTINS.items():
        assert BUILTINS[name].algebraic == declared.algebraic


def test_first_and_last_count_null_as_a_value() -> None:
    assert over("first", None, 3) == over("last", 3, None) == [None]
    assert over("first", 3, None) == over("last", None, 3) == [3]


@pytest.mark.parametrize(
    ("name", "results"), [("first", [None, None, 1, 2, None]), ("last", [None, 1, 2, None, 3])]
)
def test_first_and_last_count_null_as_a_value_in_windows_and_panes(name: str, results: list[object]) -> None:
    #  tuples   -  1  2  -  3     ROWS 1 PRECEDING
    values = [None, 1, 2, None, 3]
    for algebraic in (True, False):
        definition = replace(BUILTINS[name], algebraic=algebraic)
        call = RowCall(definition, lambda row: row)
        plain = WindowAggregateOperator([FramedCall(call, WindowFrame("ROWS", 1))])
        assert [out.row[1] for v in values for out in plain.process(0, Timed(0, (v,)))] == results
        paned = WindowAggregateOperator([FramedCall(call, WindowFrame("ROWS", 3, slide=2))])
        out = [out.row[1] for v in values for out in paned.process(0, Timed(0, (v,)))]
        assert out == [values[1] if name == "last" else None, None]


def test_the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() -> None:
    assert over("median", 1, 2) == [1.5]
    assert over("median", 4, 1, 3, 2) == [2.5]
    assert over("median", Decimal("0.1"), Decimal("0.2"), Decimal("0.4")) == [0.2]
    assert over("median", math.nan, 1.0, math.nan, 2.0, 3.0) == [3.0]
    assert math.isnan(over("median", math.nan, 1.0)[0])


def test_the_population_variance_of_one_value_is_0() -> None:
    assert over("var_pop", 3) == over("stddev_pop", 3) == [0.0]


def test_count_without_arguments_counts_every_tuple() -> None:
    base = BUILTINS["count"].base
    assert base is not None
    assert evaluate(base, [(), (), ()]) == [3]


def test_variance_and_deviation_of_one_value_are_null() -> None:
    assert over("variance", 3) == over("stddev", 3) == [None]


def test_sums_keep_the_type_of_their_input() -> None:
    assert repr(over("sum", 1, 2)) == "[3]"
    assert repr(over("sum", 1.0, 2.0)) == "[3.0]"
    assert repr(over("sum", Decimal("0.10"), Decimal("0.20"))) == "[Decimal('0.3')]"
    assert repr(over("avg", 1, 3)) == "[2.0]"
    assert repr(over("avg", Decimal("0.1"), Decimal("0.2"))) == "[Decimal('0.15')]"


def test_a_sum_is_rounded_once() -> None:
    assert over("sum", 1e16, 1.0, -1e16) == [1.0]
    assert over("sum", *[0.1] * 10) == [1.0]


def test_a_sum_of_finite_doubles_can_overflow_to_infinity() -> None:
    assert over("sum", 1.7e308, 1.7e308) == [math.inf]
    assert over("sum", -1.7e308, -1.7e308) == [-math.inf]


def test_infinities_and_nans_follow_floating_point_rules() -> None:
    assert over("sum", 1.0, math.inf) == [math.inf]
    assert math.isnan(over("sum", math.inf, -math.inf)[0])
    assert math.isnan(over("variance", 1.0, math.inf)[0])


def test_nan_is_the_greatest_number_and_counts_as_one_value() -> None:
    assert math.isnan(over("max", 1.0, math.nan, 2.0)[0])
    assert over("min", math.nan, 1.0, 2.0) == [1.0]
    assert over("count_distinct", math.nan, float("nan"), 1.0) == [2]


def test_an_infinity_has_no_effect_after_it_has_left_the_window() -> None:
    window = BUILTINS["sum"].window
    assert window is not None
    inwindow = Inwindow()
    instance = window(inwindow)
    inwindow.insert(0, (math.inf,))
    assert instance.initialize((math.inf,)) == [math.inf]
    inwindow.insert(1, (2.0,))
    assert instance.iterate((2.0,)) == [math.inf]
    assert instance.expire((math.inf,)) == [2.0]


def test_g16_max_stores_only_values_that_can_become_the_maximum() -> None:
    #  tuples   5  3  4  1  2  6        ROWS 2 PRECEDING
    #           5                       kept: 5
    #           5  3                          5 3
    #           5     4                       5 4     (4 beats 3)
    #                 4  1                    4 1     (5 expires by its number, two are left)
    #                 4     2                 4 2
    #                          6              6
    window = BUILTINS["max"].window
    assert window is not None
    inwindow = Inwindow()
    instance = window(inwindow)
    steps = []
    for number, value in enumerate([5, 3, 4, 1, 2, 6]):
        while (oldest := inwindow.oldest_position()) is not None and oldest < number - 2:
            instance.expire(inwindow.oldest() or ())
            inwindow.remove_oldest(oldest)
        inwindow.insert(number, (value,))
        (returned,) = instance.iterate((value,)) if number else instance.initialize((value,))
        steps.append((returned, [args[0] for args in inwindow]))
    assert steps == [(5, [5]), (5, [5, 3]), (5, [5, 4]), (4, [4, 1]), (4, [4, 2]), (6, [6])]


def test_x6_equal_older_values_stay_in_the_window_of_max() -> None:
    window = BUILTINS["max"].window
    assert window is not None
    inwindow = Inwindow()
    instance = window(inwindow)
    for number in range(3):
        inwindow.insert(number, (7,))
        assert instance.iterate((7,)) == [7]
    assert list(inwindow) == [(7,)] * 3
