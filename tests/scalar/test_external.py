"""Functions in Python give the same values by column, by row and under a condition."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import QueryDefinition
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import SelectQuery
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.rows import compile_expression
from slicemill.functions.values import ExpressionError
from slicemill.types import Schema

MODULE = """
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

def hypotenuse(x, y):
    return pc.sqrt(pc.add(pc.multiply(x, x), pc.multiply(y, y)))

def shout(t):
    return [None if one is None else f"{one}!" for one in t.to_pylist()]

def inverse(x):
    if pc.any(pc.equal(x, 0)).as_py():
        raise ZeroDivisionError("there is a 0")
    return pc.divide(1.0, x)

def as_numpy(x):
    return np.arange(len(x))

def later(at, by):
    return pc.add(at, pc.multiply(by, pa.scalar(1_000_000, pa.duration("us"))))

def too_many(x):
    return pa.concat_arrays([x, x])

def fractions(x):
    return pc.divide(pc.cast(x, pa.float64()), 2.0)
"""
DECLARED = """
CREATE STREAM s (x real, y real, n int, t varchar, ts timestamp) ORDER BY ts;
CREATE FUNCTION hypotenuse(x real, y real) RETURNS real LANGUAGE PYTHON AS 'my_functions:hypotenuse';
CREATE FUNCTION shout(t varchar) RETURNS varchar(4) LANGUAGE PYTHON AS 'my_functions:shout';
CREATE FUNCTION inverse(x real) RETURNS real LANGUAGE PYTHON AS 'my_functions:inverse';
CREATE FUNCTION as_numpy(x int) RETURNS int LANGUAGE PYTHON AS 'my_functions:as_numpy';
CREATE FUNCTION later(at timestamp, seconds int) RETURNS timestamp LANGUAGE PYTHON AS 'my_functions:later';
CREATE FUNCTION too_many(x int) RETURNS int LANGUAGE PYTHON AS 'my_functions:too_many';
CREATE FUNCTION fractions(x int) RETURNS int LANGUAGE PYTHON AS 'my_functions:fractions';
"""


@pytest.fixture(autouse=True, scope="module")
def my_functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("functions")
    (folder / "my_functions.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop("my_functions", None)


def expression(text: str) -> tuple[Expr, Schema]:
    bound = bind(f"{DECLARED} SELECT {text} AS v FROM s;")
    query = bound.statements[-1][0]
    assert isinstance(query, QueryDefinition) and isinstance(query.query, SelectQuery)
    return query.query.items[0].expr, query.query.inputs[0].schema


ROWS = [
    (3.0, 4.0, 1, "a", 1_000_000),
    (None, 1.0, None, None, 2_000_000),
    (0.0, 2.0, 7, "bcdef", 3_000_000),
    (5.0, None, 8, "", None),
]


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    types = [pa.float64(), pa.float64(), pa.int32(), pa.string(), pa.timestamp("us", "UTC")]
    columns = [[row[place] for row in rows] for place in range(5)]
    arrays = [
        pa.array(c, pa.int64()).cast(ty) if ty == types[4] else pa.array(c, ty)
        for c, ty in zip(columns, types, strict=True)
    ]
    return pa.table(arrays, ["x", "y", "n", "t", "ts"])


def both(text: str, rows: list[tuple[Any, ...]] = ROWS) -> list[Any]:
    """Return the values by column, after a comparison with the values by row."""
    expr, schema = expression(text)
    by_column = compile_vector(expr, schema)(table(rows)).combine_chunks()
    if pa.types.is_timestamp(by_column.type):
        by_column = by_column.cast(pa.int64())
    by_row = [compile_expression(expr, schema)(row) for row in rows]
    assert by_column.to_pylist() == by_row
    return by_row


def test_a_python_function_gets_columns_and_returns_the_declared_type() -> None:
    assert both("hypotenuse(x, y)") == [5.0, None, 2.0, None]
    assert both("hypotenuse(n, 0) + 1") == [2.0, None, 8.0, 9.0]
    assert both("shout(t)") == ["a!", None, "bcde", "!"]
    assert both("later(ts, n)") == [2_000_000, None, 10_000_000, None]
    assert both("hypotenuse(3, 4)") == [5.0] * 4


def test_an_error_of_a_python_function_concerns_only_rows_that_evaluate_it() -> None:
    assert both("CASE WHEN x <> 0 THEN inverse(x) END") == [1 / 3, None, None, 0.2]
    expr, schema = expression("inverse(x)")
    for run in (
        lambda: compile_vector(expr, schema)(table(ROWS)),
        lambda: compile_expression(expr, schema)(ROWS[2]),
    ):
        with pytest.raises(
            ExpressionError, match=r"my_functions:inverse failed: ZeroDivisionError: there is a 0"
        ):
            run()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("too_many(n)", "was given 1 values and returned 2; it has to return one for each"),
        ("fractions(n)", "failed: ArrowInvalid: Float value 0.5"),
    ],
)
def test_a_result_of_wrong_length_or_type_is_an_error(text: str, said: str) -> None:
    expr, schema = expression(text)
    with pytest.raises(ExpressionError, match=said):
        compile_vector(expr, schema)(table(ROWS))


def test_a_python_function_can_return_numpy_arrays_and_get_no_rows() -> None:
    expr, schema = expression("as_numpy(n)")
    assert compile_vector(expr, schema)(table(ROWS)).to_pylist() == [0, 1, 2, 3]
    assert compile_vector(expr, schema)(table([])).to_pylist() == []


number = st.none() | st.floats(-1e6, 1e6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(number, number), max_size=12))
def test_a_python_function_agrees_with_the_equivalent_expression(
    pairs: list[tuple[float | None, float | None]],
) -> None:
    rows = [(x, y, 1, "", 0) for x, y in pairs]
    found = both("hypotenuse(x, y)", rows)
    assert found == both("sqrt(x * x + y * y)", rows)
