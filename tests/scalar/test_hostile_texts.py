"""String functions take linear time for long strings, or reject strings that are too long."""

from __future__ import annotations

import random
import time

import pytest
from sqlglot import exp

from slicemill import types as t
from slicemill.binder.expressions import bind
from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.columns.rows import to_table
from slicemill.functions import regular_expressions
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.rows import compile_expression
from slicemill.functions.values import ExpressionError
from slicemill.sql.dialect import parse
from slicemill.types import Column, Schema, Timed

SCHEMA = Schema((Column("n", t.INT), Column("s", t.VARCHAR)))
A = "a" * 1_000_000
# With quadratic methods each call takes more than ten seconds.
LONG = f"concat('{'a' * 250_000}', 'b', '{'a' * 250_000}')"
FAST = {
    f"length(replace(s, {LONG}, 'x'))": 1_000_000,
    f"length(replace(s, concat(s, 'b'), {LONG}))": 1_000_000,
    f"length(substring_index(s, {LONG}, -1))": 1_000_000,
    f"length(substring_index(s, {LONG}, 1))": 1_000_000,
    f"length(split_part(s, {LONG}, -1))": 1_000_000,
    f"instr(s, {LONG})": 0,
    f"contains(s, {LONG})": False,
    f"locate({LONG}, s, 2)": 0,
    "length(translate(s, 'abc', 'x'))": 1_000_000,
    f"s LIKE '{'%a' * 300}%b'": False,
    "size(split(s, 'a', 3))": 3,
}
TOO_LONG = [
    "length(replace(s, 'a', s))",
    "length(replace(s, concat('', 'a'), s))",
    "length(concat(repeat(s, 60), repeat(s, 60)))",
    "length(repeat(s, 60) || repeat(s, 60))",
    "length(concat_ws(repeat(s, 60), 'x', 'y', 'z'))",
    "length(array_join(array('x', 'y', 'z'), repeat(s, 60)))",
    "length(regexp_replace(s, 'a', s))",
    "length(repeat(s, 101))",
    "length(lpad(s, n, 'x'))",
    "length(rpad(s, n, 'x'))",
]


class _Columns:
    def column(self, node: exp.Column) -> Expr:
        found = SCHEMA.find(node.name)
        assert found is not None
        return ColumnRef(found.name, found.type)

    def call(self, node: exp.Anonymous) -> None:
        return None

    def call_names(self) -> list[str]:
        return []


def _bound(text: str) -> Expr:
    (select,) = parse(f"SELECT {text} AS x FROM T")
    return bind(select.expressions[0].this, _Columns())  # type: ignore[arg-type]


def _by_column(expr: Expr, rows: list[tuple[int, str]]) -> list[object]:
    table = to_table([Timed(0, row) for row in rows], SCHEMA, [0] * len(rows))
    found: list[object] = compile_vector(expr, SCHEMA)(table).to_pylist()
    return found


@pytest.mark.parametrize("text", FAST, ids=range(len(FAST)))
def test_search_in_a_long_string_takes_linear_time(text: str) -> None:
    expr, began = _bound(text), time.process_time()
    assert compile_expression(expr, SCHEMA)((0, A)) == FAST[text]
    assert _by_column(expr, [(0, A)]) == [FAST[text]]
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", TOO_LONG)
def test_a_too_long_result_string_is_rejected_before_it_is_built(text: str) -> None:
    expr, row = _bound(text), (100_000_001, A)
    with pytest.raises(ExpressionError, match=r"would make a text of \d+ characters; 100000000 are allowed"):
        compile_expression(expr, SCHEMA)(row)
    with pytest.raises(ExpressionError, match=r"would make a text of \d+ characters; 100000000 are allowed"):
        _by_column(expr, [row])


@pytest.mark.parametrize(
    "text", ["repeat(s, n)", "lpad(s, n * 100000, 'x')", "repeat('a', 9000000)", "concat(s, repeat(s, n))"]
)
def test_the_strings_of_a_block_of_rows_have_a_size_limit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("evaluate", "strings"):
        monkeypatch.setattr(f"slicemill.functions.{module}.MOST_TEXT", 25_000_000)
    with pytest.raises(
        ExpressionError, match="the texts that an expression makes of a block of rows have more"
    ):
        _by_column(_bound(text), [(90, A[:100_000])] * 20)
    with pytest.raises(
        ExpressionError, match="the texts that an expression makes of a block of rows have more"
    ):
        _by_column(_bound(text), [(60 + place, A[:100_000]) for place in range(5)])


@pytest.mark.parametrize("type_", ["int", "double", "decimal(38, 2)", "timestamp", "date", "boolean"])
def test_an_error_message_does_not_repeat_a_long_string(type_: str) -> None:
    expr = _bound(f"CAST(s AS {type_})")
    with pytest.raises(ExpressionError) as raised:
        compile_expression(expr, SCHEMA)((0, A))
    assert len(str(raised.value)) < 1000
    assert "a … (999" in str(raised.value)


def test_a_linear_pattern_with_many_steps_has_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RE2 follows 900 threads at each letter of this text, in one call that cannot be interrupted."""
    text = "".join(random.Random(1).choices("ab", k=20_000))
    expr = _bound("regexp_like(s, '[ab]*a[ab]{900}c')")
    assert compile_expression(expr, SCHEMA)((0, text)) is False
    monkeypatch.setattr(regular_expressions, "MOST_STEPS", 1_000_000)
    monkeypatch.setattr(regular_expressions, "MATCH_S", 0.1)
    with pytest.raises(ExpressionError, match=r"took more than 0\.1 s on one text of 20000 characters"):
        compile_expression(_bound("regexp_like(s, '[ab]*a[ab]{900}c')"), SCHEMA)((0, text))
