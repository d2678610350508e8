"""Expressions evaluated by column equal those evaluated by row, values and errors."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import islice
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar.random_calls import NAMES, Maker
from scalar.random_rows import SCHEMA, as_table, random_rows
from slicemill import types as t
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.rows import compile_expression
from slicemill.functions.values import ExpressionError, representable
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.types import Column, Schema

# The first tables avoid extremes, the others contain them.
TABLES = [
    (rows, as_table(rows)) for rows in (random_rows(Random(seed), 30, tame=seed < 4) for seed in range(8))
]


def expected(expr: Expr, rows: list[tuple[Any, ...]]) -> list[Any] | str:
    """Return the values of the row form, or the message of its first error."""
    try:
        by_row = compile_expression(expr, SCHEMA)
        return [representable(by_row(row), expr.type) for row in rows]
    except ExpressionError as error:
        return str(error)


def computed(expr: Expr, table: pa.Table) -> list[Any] | str:
    try:
        column = compile_vector(expr, SCHEMA)(table)
    except ExpressionError as error:
        return str(error)
    return to_values(from_arrow(column.combine_chunks(), expr.type), len(column))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


def assert_equal(expr: Expr, rows: list[tuple[Any, ...]], table: pa.Table) -> bool:
    """Compare both forms; return True if the result is values, not an error."""
    wanted, found = expected(expr, rows), computed(expr, table)
    if isinstance(wanted, str) or isinstance(found, str):
        assert wanted == found, expr
        return False
    assert len(wanted) == len(found)
    for row, a, b in zip(rows, wanted, found, strict=True):
        assert same(a, b), f"{expr} on {row}: {a!r} is computed as {b!r}"
    return True


@pytest.mark.parametrize("name", NAMES)
def test_every_function_by_column_equals_its_row_form(name: str) -> None:
    random = Random(f"every {name}")
    maker = Maker(random)
    drawn = (maker.call(name) for _ in range(600))
    answered = 0
    for expr in islice((expr for expr in drawn if expr is not None), 20):
        rows, table = random.choice(TABLES)
        assert_equal(expr, rows, table)
        # Evaluate row by row, so that one error does not hide the other rows.
        for place in random.sample(range(len(rows)), 6):
            answered += assert_equal(expr, [rows[place]], table.slice(place, 1))
    assert answered > 10


@settings(max_examples=1500)
@given(st.integers(0, 2**40), st.integers(1, 3), st.sampled_from([0, 1, 2, 24]), st.booleans())
def test_nested_expressions_by_column_equal_their_row_form(
    seed: int, depth: int, rows: int, tame: bool
) -> None:
    random = Random(seed)
    table = random_rows(random, rows, tame)
    assert_equal(Maker(random).any(depth), table, as_table(table))


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**8), 10**8), max_size=8),
    st.sampled_from(
        [
            "yyyy-MM-dd",
            "E D Q",
            "HH 'h'",
            "h a",
            "HH:mm",
            "mm",
            "ss",
            "S",
            "ss.SSS",
            "SSSSSS",
            "'at'",
            "",
            "ww",
        ]
    ),
)
def test_formatted_timestamps_by_column_equal_their_row_form(times: list[int | None], pattern: str) -> None:
    """The column form formats equal times once; times that differ in a formatted field stay apart."""
    schema = Schema((Column("ts", t.TIMESTAMP),))
    call = Call("date_format", (ColumnRef("ts", t.TIMESTAMP), Literal(pattern, t.VARCHAR)), t.VARCHAR)
    form, given_ = compile_expression(call, schema), [time for time in times for _ in range(2)]
    for place in range(1, len(given_), 2):
        if (time := given_[place]) is not None:
            given_[place] = min(time + 1, 2**63 - 1)
    table = pa.table({"ts": pa.array(given_, pa.int64()).cast(pa.timestamp("us", "UTC"))})
    try:
        wanted = [form((time,)) for time in given_]
    except ExpressionError as error:
        with pytest.raises(ExpressionError, match=re.escape(str(error))):
            compile_vector(call, schema)(table)
    else:
        assert compile_vector(call, schema)(table).to_pylist() == wanted


def test_decimals_of_different_scales_are_compared_exactly() -> None:
    """No decimal of 38 digits can hold both sides: rounded to one type, 1.4 would equal 1."""
    whole, fraction = t.decimal(38, 0), t.decimal(38, 18)
    schema = Schema((Column("a", whole), Column("b", fraction)))
    call = Call("nullif", (ColumnRef("a", whole), ColumnRef("b", fraction)), whole)
    table = as_table([(Decimal(1), Decimal("1.4")), (Decimal(1), Decimal(1))], schema)
    assert compile_vector(call, schema)(table).to_pylist() == [Decimal(1), None]
