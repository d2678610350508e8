"""Periods of valid time and their relations (L7), which no SQL system has, against drawings and points."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalar.random_rows import as_table
from slicemill import types as t
from slicemill.catalog.expressions import Call, ColumnRef
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.rows import compile_expression
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.sql.grammar.expressions import INTERVAL_RELATIONS
from slicemill.types import Column, Schema, Type

MINUTE_US = 60_000_000
ALLEN = [name.lower() for name in INTERVAL_RELATIONS[:13]]

# Time increases to the right; the first line is x, the second y.
DRAWINGS = {
    "before": """
        xxx
            yyy""",
    "meets": """
        xxx
           yyy""",
    "overlaps": """
        xxx
          yyy""",
    "starts": """
        xxx
        yyyyy""",
    "during": """
          xxx
        yyyyyyy""",
    "finishes": """
            xxx
        yyyyyyy""",
    "equals": """
        xxx
        yyy""",
    "finished by": """
        xxxxxxx
            yyy""",
    "contains": """
        xxxxxxx
          yyy""",
    "started by": """
        xxxxx
        yyy""",
    "overlapped by": """
          xxx
        yyy""",
    "met by": """
           xxx
        yyy""",
    "after": """
            xxx
        yyy""",
}


def periods() -> st.SearchStrategy[tuple[int, int]]:
    """Draw short periods close together, so that their ends often coincide."""
    return st.tuples(st.integers(0, 6), st.integers(1, 4)).map(lambda p: (p[0], p[0] + p[1]))


def value(function: str, type_: Type, *arguments: tuple[Any, Type]) -> Any:
    """Return the value of a call, which is equal by row and by column."""
    schema = Schema(tuple(Column(f"c{index}", kind) for index, (_, kind) in enumerate(arguments)))
    call = Call(function, tuple(ColumnRef(column.name, column.type) for column in schema), type_)
    row = tuple(argument for argument, _ in arguments)
    by_row = compile_expression(call, schema)(row)
    column = compile_vector(call, schema)(as_table([row], schema)).combine_chunks()
    assert [by_row] == to_values(from_arrow(column, type_), 1)
    return by_row


def related(relation: str, x: tuple[int, ...], y: tuple[int, ...]) -> Any:
    return value(relation, t.BOOLEAN, (x, t.PERIOD), (y, t.PERIOD))


def drawn(drawing: str) -> tuple[tuple[int, int], tuple[int, int]]:
    x, y = ((line.index(line.strip()[0]), len(line)) for line in drawing.splitlines()[1:])
    return x, y


def test_every_relation_has_a_drawing() -> None:
    assert set(DRAWINGS) == set(ALLEN)


@pytest.mark.parametrize("relation", ALLEN)
def test_each_drawing_satisfies_only_its_own_relation(relation: str) -> None:
    assert [name for name, drawing in DRAWINGS.items() if related(relation, *drawn(drawing))] == [relation]


@given(periods(), periods())
def test_exactly_one_of_allens_thirteen_relations_holds(x: tuple[int, int], y: tuple[int, int]) -> None:
    assert [related(relation, x, y) for relation in ALLEN].count(True) == 1


@pytest.mark.parametrize(
    ("relation", "inverse"),
    [
        ("before", "after"),
        ("meets", "met by"),
        ("overlaps", "overlapped by"),
        ("starts", "started by"),
        ("during", "contains"),
        ("finishes", "finished by"),
        ("equals", "equals"),
    ],
)
@given(x=periods(), y=periods())
def test_a_relation_and_its_inverse_hold_together(
    relation: str, inverse: str, x: tuple[int, int], y: tuple[int, int]
) -> None:
    assert related(relation, x, y) is related(inverse, y, x)


@given(periods(), periods())
def test_intersects_precedes_and_covers_follow_the_points_of_the_periods(
    x: tuple[int, int], y: tuple[int, int]
) -> None:
    inside_x, inside_y = set(range(*x)), set(range(*y))
    assert related("intersects", x, y) is bool(inside_x & inside_y)
    assert related("precedes", x, y) is (max(inside_x) < min(inside_y))
    assert related("covers", x, y) is (inside_x >= inside_y)


def test_an_open_period_compares_like_a_closed_period() -> None:
    assert related("starts", (0, 5, True), (0, 9)) is True


def test_contains_is_a_relation_of_periods_and_a_function_of_strings() -> None:
    assert related("contains", (0, 9), (1, 2)) is True
    assert value("contains", t.BOOLEAN, ("abc", t.VARCHAR), ("b", t.VARCHAR)) is True


@given(periods())
def test_begin_and_end_return_the_arguments_of_period(ends: tuple[int, int]) -> None:
    begin, end = ((moment, t.TIMESTAMP) for moment in ends)
    assert value("period", t.PERIOD, begin, end) == ends
    assert value("begin", t.TIMESTAMP, (ends, t.PERIOD)) == ends[0]
    assert value("end", t.TIMESTAMP, (ends, t.PERIOD)) == ends[1]


@pytest.mark.parametrize("name", ["begin", "end"])
def test_begin_and_end_of_null_are_null(name: str) -> None:
    assert value(name, t.TIMESTAMP, (None, t.PERIOD)) is None


@pytest.mark.parametrize(("length_us", "minutes"), [(179_999_999, 2), (180_000_000, 3), (-179_999_999, -2)])
def test_a_length_in_units_is_truncated(length_us: int, minutes: int) -> None:
    unit = (MINUTE_US, t.INTERVAL)
    assert value("whole_units", t.BIGINT, (length_us, t.INTERVAL), unit) == minutes
    if length_us > 0:
        assert value("whole_units", t.BIGINT, ((7, 7 + length_us), t.PERIOD), unit) == minutes
