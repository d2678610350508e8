"""Numbering of keys by the equality of GROUP BY, for every column type and division into runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns.keys import Keys, distinct_keys, keys_found_once
from support.stored import stored

INTS = st.none() | st.integers(-2, 2)
TEXTS = st.none() | st.sampled_from(["", "a", "b", "NULL"])
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])


def _table(rows: list[tuple[Any, Any, Any]], width: int) -> list[pa.Array]:
    types = (pa.int64(), pa.string(), pa.float64())
    return [pa.array([row[i] for row in rows], types[i]) for i in range(width)]


def _canonical(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("nan" if value != value else 0.0 if value == 0 else value for value in row)


@given(st.lists(st.lists(st.tuples(INTS, TEXTS, FLOATS), max_size=8), max_size=4), st.integers(0, 3))
def test_equal_keys_have_equal_numbers_in_every_run(runs: list[list[Any]], width: int) -> None:
    keys, known = Keys(), dict[Any, int]()
    for rows in runs:
        columns = _table(rows, width)
        numbers = keys.number(distinct_keys(columns, len(rows)), columns)
        expected = [known.setdefault(_canonical(row[:width]), len(known)) for row in rows]
        assert numbers.tolist() == expected
        keys = stored(keys)
    assert len(keys) == len(known)
    if known and width:
        back = list(zip(*(column.to_pylist() for column in keys.values(np.arange(len(keys)))), strict=True))
        assert [_canonical(row) for row in back] == list(known)


def test_a_removed_key_gets_a_new_number_when_it_returns() -> None:
    keys = Keys()
    columns = [pa.array(["a", "b", "c"])]
    keys.number(distinct_keys(columns, 3), columns)
    assert keys.keep(np.array([False, True, True])).tolist() == [-1, 0, 1]
    columns = [pa.array(["a", "c"])]
    assert keys.number(distinct_keys(columns, 2), columns).tolist() == [2, 1]
    assert keys.values(np.array([2, 0, 1]))[0].to_pylist() == ["a", "b", "c"]


def test_zero_has_no_sign() -> None:
    keys, columns = Keys(), [pa.array([-0.0, 0.0])]
    keys.number(distinct_keys(columns, 2), columns)
    assert str(keys.values(np.array([0]))[0].to_pylist()) == "[0.0]"


def test_without_key_columns_all_rows_have_one_key() -> None:
    found = distinct_keys([], 3)
    assert (found.codes.tolist(), found.values, found.rows.tolist()) == ([0, 0, 0], [()], [0])
    assert distinct_keys([], 0).values == []


@given(st.lists(st.tuples(INTS, TEXTS, FLOATS), max_size=12), st.integers(1, 3))
def test_codes_are_indexes_of_distinct_keys_and_rows_are_their_first_rows(
    rows: list[Any], width: int
) -> None:
    found = distinct_keys(_table(rows, width), len(rows))
    known: dict[Any, int] = {}
    codes = [known.setdefault(_canonical(row[:width]), len(known)) for row in rows]
    assert found.codes.tolist() == codes and len(found.values) == len(known)
    assert found.rows.tolist() == [codes.index(code) for code in range(len(known))]


ENDS = pa.struct([("begin", pa.int64()), ("end", pa.int64())])


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        (pa.array([1, None, 1], pa.timestamp("us", "UTC")), [0, 1, 0]),
        (pa.array([1, None, 1], pa.date32()), [0, 1, 0]),
        (pa.array([1, None, 1], pa.duration("us")), [0, 1, 0]),
        (pa.nulls(3), [0, 0, 0]),
        (pa.array([True, None, False]), [0, 1, 2]),
        (pa.array([Decimal("1.50"), Decimal("1.5"), None], pa.decimal128(9, 2)), [0, 0, 1]),
        (pa.array([b"", None, b""]), [0, 1, 0]),
        (pa.array([(1, 2), (1, 3), None, (1, 2), None], ENDS), [0, 1, 2, 0, 2]),
        (pa.chunked_array([[1.0], [], [-0.0, 0.0, float("nan")], [-float("nan")]]), [0, 1, 1, 2, 2]),
        (pa.array([0.0, -0.0, None, 1.5]).slice(1), [0, 1, 2]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array | pa.ChunkedArray) else "",
)
def test_equal_keys_of_every_type_have_equal_codes(column: pa.Array, codes: list[int]) -> None:
    assert distinct_keys([column], len(column)).codes.tolist() == codes


def test_the_keys_of_a_column_are_computed_once_in_a_run() -> None:
    column = pa.array(["a", "b", "a"])
    assert distinct_keys([column], 3) is not distinct_keys([column], 3)
    with keys_found_once():
        found = distinct_keys([column], 3)
        assert distinct_keys([column], 3) is found
        # A slice of the same memory is another column.
        assert distinct_keys([column.slice(1)], 2).codes.tolist() == [0, 1]
        assert distinct_keys([column, column], 3).values == [("a", "a"), ("b", "b")]
    assert distinct_keys([column], 3) is not found
