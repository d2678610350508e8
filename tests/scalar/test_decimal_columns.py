"""Decimals of every precision by column equal the row form, and common operations have a kernel."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar.random_rows import as_table
from slicemill import types as t
from slicemill.catalog.expressions import Call, Cast, ColumnRef, Expr, Literal
from slicemill.functions.evaluate import compile_vector, fallbacks
from slicemill.functions.rows import compile_expression
from slicemill.functions.signatures import SCALARS, arithmetic_type, result_type
from slicemill.functions.values import EXACT, ExpressionError, representable
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.types import Column, Schema, Type

ARITHMETIC = ("/", "%", "div", "pmod", "+", "*")
COMPARISONS = ("<", ">=", "=", "<>", "<=>", "in")
ROUNDINGS = ("round", "ceil", "floor", "cast", "text")
TYPES = [
    t.decimal(*digits) for digits in ((12, 2), (5, 2), (18, 4), (3, 0), (22, 10), (38, 20), (38, 0), (9, 9))
]


def drawn(random: Random, type_: Type) -> Decimal | None:
    """Draw a value near zero, near a rounding tie, or with all digits."""
    assert type_.precision is not None and type_.scale is not None
    most = 10**type_.precision - 1
    digits = random.choice(
        [0, 1, 5, 25, 50, 125, 10**type_.scale // 2, most, most // 7, random.randint(0, most)]
    )
    return random.choice(
        [None, *[Decimal(min(digits, most) * random.choice([1, -1])).scaleb(-type_.scale, EXACT)] * 5]
    )


def call_of(name: str, left: Expr, right: Expr, places: int) -> Expr | None:
    if name in COMPARISONS:
        return Call(name, (left, right), t.BOOLEAN)
    if name == "text":
        return Cast(left, t.VARCHAR)
    if name == "cast":
        return Cast(left, t.decimal(12, min(places, 12)))
    if name == "round":
        arguments: list[Expr] = [left, Literal(places, t.INT)]
    elif name in ("ceil", "floor"):
        arguments = [left]
    elif name == "pmod":
        arguments = [left, right]
    else:
        type_ = arithmetic_type(name, left.type, right.type)
        return None if type_ is None else Call(name, (left, right), type_)
    type_ = result_type(SCALARS[name], arguments)
    return None if type_ is None else Call(name, tuple(arguments), type_)


@settings(max_examples=200)
@given(
    st.integers(0, 2**32),
    st.sampled_from([*ARITHMETIC, *COMPARISONS, *ROUNDINGS]),
    st.sampled_from(TYPES),
    st.sampled_from([*TYPES, t.INT, t.BIGINT]),
    st.integers(0, 12),
    st.booleans(),
)
def test_decimals_by_column_equal_the_row_form(
    seed: int, name: str, left: Type, right: Type, places: int, constant: bool
) -> None:
    random = Random(seed)
    schema = Schema((Column("a", left), Column("b", right)))
    whole = [1, -1, 3, 7, 0, 2**31 - 1]
    rows = [
        (drawn(random, left), random.choice(whole) if t.is_integer(right) else drawn(random, right))
        for _ in range(random.choice([1, 6]))
    ]
    other: Expr = Literal(rows[0][1], right) if constant and rows[0][1] is not None else ColumnRef("b", right)
    call = call_of(name, ColumnRef("a", left), other, places)
    if call is None:
        return
    form = compile_expression(call, schema)
    for row in rows:
        table = as_table([row, row], schema)
        try:
            wanted = representable(form(row), call.type)
        except ExpressionError as error:
            with pytest.raises(ExpressionError) as found:
                compile_vector(call, schema)(table)
            assert str(found.value) == str(error)
            continue
        column = compile_vector(call, schema)(table).combine_chunks()
        assert [repr(value) for value in to_values(from_arrow(column, call.type), 2)] == [repr(wanted)] * 2


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, *ROUNDINGS])
@pytest.mark.parametrize("right", [t.decimal(5, 2), t.decimal(3, 0), t.INT, t.decimal(12, 2)])
def test_operations_on_prices_have_kernels(name: str, right: Type) -> None:
    schema = Schema((Column("a", t.decimal(12, 2)), Column("b", right)))
    call = call_of(name, ColumnRef("a", t.decimal(12, 2)), ColumnRef("b", right), 1)
    assert call is not None and not fallbacks(call, schema)
