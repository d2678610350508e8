"""Rows converted to tables and back, with values of all types."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.columns.rows import column_values, plain_rows, timed_rows, to_table
from slicemill.types import DOUBLE, Column, Schema, Timed, Type

LONG, SHORT = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    t.BOOLEAN: st.booleans(),
    t.INT: SHORT,
    t.BIGINT: LONG,
    t.DOUBLE: st.floats(),
    t.decimal(38, 2): st.integers(-(10**30), 10**30).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -2))
    ),
    t.VARCHAR: st.text(st.characters(codec="utf-8"), max_size=3),
    t.BINARY: st.binary(max_size=3),
    t.TIMESTAMP: LONG,
    t.DATE: SHORT,
    t.INTERVAL: LONG,
    t.MONTHS: SHORT,
    t.PERIOD: st.tuples(LONG, LONG),
    t.NULL: st.none(),
}
SCHEMA = Schema(tuple(Column(f"c{n}", type_) for n, type_ in enumerate(VALUES)))


@given(st.lists(st.tuples(LONG, st.tuples(*(st.none() | values for values in VALUES.values()))), max_size=4))
def test_rows_survive_a_round_trip_through_a_table(rows: list[tuple[int, tuple[Any, ...]]]) -> None:
    timed = [Timed(ts, row) for ts, row in rows]
    found = to_table(timed, SCHEMA, [7] * len(rows))
    assert list(map(repr, timed_rows(found, SCHEMA))) == list(map(repr, timed))
    assert found.column_names == ["_ts", "_seq", "_arr", *SCHEMA.names]
    assert found["_seq"].to_pylist() == list(range(len(rows))) and found["_arr"].to_pylist() == [7] * len(
        rows
    )


def test_rows_get_the_given_sequence_numbers() -> None:
    schema = Schema((Column("x", t.INT),))
    found = to_table([Timed(5, (1,)), Timed(6, (None,))], schema, [8, 9], [40, 30])
    assert found.to_pydict() == {"_ts": [5, 6], "_seq": [40, 30], "_arr": [8, 9], "x": [1, None]}


def test_only_columns_of_the_schema_are_read() -> None:
    schema = Schema((Column("x", t.INT), Column("y", t.INT)))
    found = to_table([Timed(0, (1, 2)), Timed(1, (3, 4))], schema, [0, 0])
    assert plain_rows(found, Schema((schema.columns[1],))) == [(2,), (4,)]
    assert plain_rows(found, Schema(())) == [(), ()]
    assert plain_rows(found.slice(0, 0), schema) == []


@pytest.mark.parametrize("chunks", [[], [[1.5, None]], [[math.inf], [], [None]]])
def test_columns_can_have_any_number_of_chunks(chunks: list[list[float | None]]) -> None:
    column = pa.chunked_array([pa.array(chunk, pa.float64()) for chunk in chunks], pa.float64())
    assert column_values(column, DOUBLE) == [value for chunk in chunks for value in chunk]
