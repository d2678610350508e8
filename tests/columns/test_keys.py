"""Keys as numbers: GROUP BY's equality, whatever the columns and wherever a stream is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns.keys import Keys, distinct_keys
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


def test_forgotten_keys_are_new_when_they_return() -> None:
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
