"""Compiled expressions: three-valued logic, checked arithmetic, casts, patterns, untyped values."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from slicemill import types as t
from slicemill.catalog.expressions import Argument, Call, Case, Cast, ColumnRef, Expr, Literal, Oldest, Value
from slicemill.errors import SlicemillError
from slicemill.functions.rows import Leaf, compile_condition, compile_expression, compile_with
from slicemill.functions.values import ExpressionError
from slicemill.types import Column, Schema, Type

NOTHING = Schema(())
THREE = (True, False, None)


def value_of(expr: Expr) -> object:
    return compile_expression(expr, NOTHING)(())


def call(function: str, type_: Type, *arguments: tuple[Any, Type]) -> object:
    return value_of(Call(function, tuple(Literal(value, kind) for value, kind in arguments), type_))


def cast(value: Value, source: Type, target: Type, safe: bool = False) -> object:
    return value_of(Cast(Literal(value, source), target, safe))


# -- Three-valued logic -----------------------------------------------------------------------------------


@pytest.mark.parametrize("a", THREE)
@pytest.mark.parametrize("b", THREE)
def test_and_or_are_minimum_and_maximum_with_unknown_in_the_middle(a: bool | None, b: bool | None) -> None:
    order = {False: 0, None: 1, True: 2}
    arguments = ((a, t.BOOLEAN), (b, t.BOOLEAN))
    assert call("and", t.BOOLEAN, *arguments) is min(a, b, key=order.__getitem__)
    assert call("or", t.BOOLEAN, *arguments) is max(a, b, key=order.__getitem__)


def test_not_unknown_is_unknown() -> None:
    assert [call("not", t.BOOLEAN, (a, t.BOOLEAN)) for a in THREE] == [False, True, None]


def test_and_or_skip_a_failing_second_operand() -> None:
    division = Call("/", (Literal(1, t.INT), Literal(0, t.INT)), t.DOUBLE)
    failing = Call(">", (division, Literal(0.0, t.DOUBLE)), t.BOOLEAN)
    assert value_of(Call("and", (Literal(False, t.BOOLEAN), failing), t.BOOLEAN)) is False
    assert value_of(Call("or", (Literal(True, t.BOOLEAN), failing), t.BOOLEAN)) is True


def test_a_condition_holds_only_if_it_is_true() -> None:
    schema = Schema((Column("b", t.BOOLEAN),))
    holds = compile_condition(ColumnRef("b", t.BOOLEAN), schema)
    assert [holds((b,)) for b in THREE] == [True, False, False]


@pytest.mark.parametrize(
    ("value", "choices", "expected"),
    [(1, (2, 1), True), (1, (2, None), None), (1, (2, 3), False), (None, (1,), None), (1, (None, 1), True)],
)
def test_in_is_unknown_if_only_a_null_could_be_equal(
    value: int | None, choices: tuple[int | None, ...], expected: bool | None
) -> None:
    assert call("in", t.BOOLEAN, (value, t.INT), *((c, t.INT) for c in choices)) is expected


def test_null_safe_equality_treats_null_as_a_value() -> None:
    pairs = [(None, None), (None, 1), (1, None), (1, 1)]
    assert [call("<=>", t.BOOLEAN, (a, t.INT), (b, t.INT)) for a, b in pairs] == [True, False, False, True]


def test_decimals_of_different_scales_are_compared_exactly() -> None:
    """Spark rounds both sides to a decimal of 38 digits: 1.4 would equal 1 here."""
    whole, fraction = t.decimal(38, 0), t.decimal(38, 18)
    assert call("=", t.BOOLEAN, (Decimal(1), whole), (Decimal("1.4"), fraction)) is False
    assert call(">", t.BOOLEAN, (Decimal(10**37), whole), (Decimal("1.4"), fraction)) is True
    assert call("in", t.BOOLEAN, (1, t.INT), (Decimal("1.0"), fraction)) is True
    assert call("nullif", whole, (Decimal(10**37), whole), (Decimal("1.4"), fraction)) == Decimal(10**37)


def test_case_takes_the_first_true_branch_and_converts_its_value() -> None:
    conditions = [Literal(value, t.BOOLEAN) for value in (None, False, True, True)]
    branches = tuple((when, Literal(index, t.INT)) for index, when in enumerate(conditions))
    value = value_of(Case(branches, Literal(9.5, t.DOUBLE), t.DOUBLE))
    assert (value, type(value)) == (2.0, float)
    assert value_of(Case(branches[:2], Literal(None, t.NULL), t.INT)) is None


# -- Errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "type_", "arguments", "message"),
    [
        ("+", t.INT, ((2**31 - 1, t.INT), (1, t.INT)), "out of the range of INT"),
        ("-", t.BIGINT, ((-(2**63), t.BIGINT), (1, t.BIGINT)), "out of the range of 64 bits"),
        ("*", t.BIGINT, ((2**62, t.BIGINT), (2, t.BIGINT)), "out of the range of 64 bits"),
        ("negative", t.INT, ((-(2**31), t.INT),), "out of the range of INT"),
        ("abs", t.BIGINT, ((-(2**63), t.BIGINT),), "out of the range of 64 bits"),
        ("/", t.DOUBLE, ((1.0, t.DOUBLE), (0.0, t.DOUBLE)), "division by zero"),
        ("%", t.INT, ((1, t.INT), (0, t.INT)), "division by zero"),
        ("div", t.BIGINT, ((-(2**63), t.BIGINT), (-1, t.BIGINT)), "out of the range"),
        (
            "+",
            t.decimal(3, 1),
            ((Decimal("99.9"), t.decimal(3, 1)),) * 2,
            r"does not fit into DECIMAL\(3, 1\)",
        ),
        ("+", t.TIMESTAMP, ((2**63 - 1, t.TIMESTAMP), (1, t.INTERVAL)), "out of the range of 64 bits"),
        ("make_date", t.DATE, ((2023, t.INT), (2, t.INT), (29, t.INT)), "no date 2023-2-29"),
        ("like", t.BOOLEAN, (("a", t.VARCHAR), ("a\\b", t.VARCHAR)), "escape character stands before b"),
        ("rlike", t.BOOLEAN, (("a", t.VARCHAR), ("[a&&b]", t.VARCHAR)), "combines character classes"),
        ("rlike", t.BOOLEAN, (("a", t.VARCHAR), ("(", t.VARCHAR)), "no regular expression"),
        ("date_format", t.VARCHAR, ((0, t.TIMESTAMP), ("ww", t.VARCHAR)), "'ww' is not supported"),
        ("period", t.PERIOD, ((5, t.TIMESTAMP), (5, t.TIMESTAMP)), "a period begins before it ends"),
    ],
)
def test_an_undefined_value_is_an_error_with_a_reason(
    function: str, type_: Type, arguments: tuple[tuple[object, Type], ...], message: str
) -> None:
    with pytest.raises(ExpressionError, match=message):
        call(function, type_, *arguments)


def test_expression_errors_are_slicemill_errors() -> None:
    assert issubclass(ExpressionError, SlicemillError)


# -- Casts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("12.5", t.VARCHAR, t.INT),
        (2**31, t.BIGINT, t.INT),
        (float("nan"), t.DOUBLE, t.INT),
        ("maybe", t.VARCHAR, t.BOOLEAN),
        ("2023-02-29", t.VARCHAR, t.DATE),
        (Decimal("99.95"), t.decimal(4, 2), t.decimal(3, 1)),
        (
            "10:15",
            t.VARCHAR,
            t.TIMESTAMP,
        ),  # Spark takes today's date, which would change the value at every replay.
    ],
)
def test_a_cast_fails_where_a_safe_cast_gives_null(value: Value, source: Type, target: Type) -> None:
    with pytest.raises(ExpressionError):
        cast(value, source, target)
    assert cast(value, source, target, safe=True) is None


def test_a_safe_cast_does_not_hide_an_error_of_its_operand() -> None:
    division = Call("/", (Literal(1, t.INT), Literal(0, t.INT)), t.DOUBLE)
    with pytest.raises(ExpressionError, match="division by zero"):
        value_of(Cast(division, t.INT, safe=True))


def test_decimals_round_half_away_from_zero() -> None:
    source, target = t.decimal(3, 2), t.decimal(3, 1)
    rounded = [cast(Decimal(text), source, target) for text in ("0.25", "-0.25", "0.24", "-0.04")]
    assert [str(value) for value in rounded] == ["0.3", "-0.3", "0.2", "0.0"]


def test_a_cast_to_a_varchar_of_limited_length_truncates() -> None:
    assert cast("abcdef", t.VARCHAR, Type(t.Kind.VARCHAR, length=3)) == "abc"


# -- Strings and times that the Spark tests leave out -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [("50%", "50!%", True), ("500", "50!%", False), ("a_b", "a!_b", True), ("!", "!!", True), ("", "", True)],
)
def test_like_with_escape_takes_the_next_character_literally(text: str, pattern: str, expected: bool) -> None:
    arguments = ((text, t.VARCHAR), (pattern, t.VARCHAR), ("!", t.VARCHAR))
    assert call("like", t.BOOLEAN, *arguments) is expected


def test_quoted_text_in_a_date_pattern_is_literal() -> None:
    moment = (1_580_738_706_789_123, t.TIMESTAMP)
    assert call("date_format", t.VARCHAR, moment, ("yyyy'T'HH''mm", t.VARCHAR)) == "2020T14'05"


# -- Environments and untyped arguments -------------------------------------------------------------------


def from_dictionary(leaf: Leaf) -> Callable[[dict[str, object]], object]:
    assert isinstance(leaf, (Argument, Oldest))
    name = leaf.name if isinstance(leaf, Argument) else f"oldest {leaf.column}"
    return lambda env: env[name]


def test_leaves_are_evaluated_by_the_environment_of_the_caller() -> None:
    difference = Call("-", (Argument("x", t.INT), Oldest("x", t.INT)), t.INT)
    assert compile_with(difference, from_dictionary)({"x": 7, "oldest x": 5}) == 2


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 2), (1.5, 2.5), (Decimal("1.50"), Decimal("2.50")), (None, None)]
)
def test_an_untyped_argument_gets_the_type_of_its_value(value: object, expected: object) -> None:
    total = Call("+", (Argument("x", t.ANY), Literal(1, t.INT)), t.ANY)
    assert compile_with(total, from_dictionary)({"x": value}) == expected


def test_an_untyped_value_of_a_wrong_type_is_an_error() -> None:
    total = compile_with(Call("+", (Argument("x", t.ANY), Literal(1, t.INT)), t.ANY), from_dictionary)
    with pytest.raises(ExpressionError, match=re.escape("+ does not take VARCHAR and INT")):
        total({"x": "one"})


def test_untyped_arguments_follow_the_rules_of_comparisons_and_functions() -> None:
    x = Argument("x", t.ANY)
    larger = compile_with(Call(">", (x, Literal(2, t.INT)), t.BOOLEAN), from_dictionary)
    assert [larger({"x": value}) for value in (3, 2.5, Decimal(2), None)] == [True, True, False, None]
    rounded = compile_with(Call("round", (x, Literal(1, t.INT)), t.ANY), from_dictionary)
    assert [rounded({"x": value}) for value in (2.25, 7, Decimal("0.05"))] == [2.3, 7, Decimal("0.1")]


# -- Edge values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expr",
    [
        Cast(Literal(10**9, t.DATE), t.TIMESTAMP),
        Cast(Literal("1" * 5000, t.VARCHAR), t.BIGINT),
        Call("div", (Literal(float("nan"), t.DOUBLE), Literal(2.0, t.DOUBLE)), t.BIGINT),
        Call("div", (Literal(float("inf"), t.DOUBLE), Literal(2.0, t.DOUBLE)), t.BIGINT),
    ],
)
def test_a_value_out_of_range_is_an_error_of_the_query(expr: Expr) -> None:
    with pytest.raises(ExpressionError):
        value_of(expr)


def test_rounding_to_a_far_negative_place_gives_zero() -> None:
    assert call("round", t.INT, (5, t.INT), (-(10**9), t.INT)) == 0
    assert call("round", t.DOUBLE, (1.5, t.DOUBLE), (-(10**9), t.INT)) == 0.0
    assert cast("0" * 5000 + "7", t.VARCHAR, t.BIGINT) == 7


def test_the_common_type_of_decimals_keeps_the_integer_digits() -> None:
    assert t.common(t.decimal(38, 0), t.decimal(38, 18)) == t.decimal(38, 0)
    assert t.common(t.decimal(20, 0), t.decimal(38, 18)) == t.decimal(38, 18)
