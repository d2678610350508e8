"""Vectors of every type, with NULLs and offsets, converted from and to Arrow columns and Python values."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from scalar.random_rows import SCHEMA, pool
from slicemill.functions.vectors import (
    Vector,
    choose_values,
    constant,
    from_arrow,
    from_values,
    full_length,
    is_constant,
    null_constant,
    replace_values,
    take,
    to_arrow,
    to_values,
)
from slicemill.types import Column


def drawn(column: Column, rows: int) -> list[Any]:
    random = Random(column.name)
    values = pool(column.type)
    return [None if random.random() < 0.3 else random.choice(values) for _ in range(rows)]


def same(a: list[Any], b: list[Any]) -> bool:
    return list(map(repr, a)) == list(map(repr, b))  # repr distinguishes NaN and the sign of zero


@pytest.mark.parametrize("column", SCHEMA.columns, ids=str)
def test_values_survive_a_round_trip_through_arrow_and_slices(column: Column) -> None:
    values = drawn(column, 40)
    array = to_arrow(from_values(values, column.type), len(values))
    assert same(to_values(from_arrow(array, column.type), 40), values)
    assert same(to_values(from_arrow(array.slice(11, 13), column.type), 13), values[11:24])


@pytest.mark.parametrize("column", SCHEMA.columns, ids=str)
def test_rows_are_taken_patched_and_chosen_by_index(column: Column) -> None:
    values, others = drawn(column, 30), drawn(column, 31)[1:]
    vector = from_values(values, column.type)
    indices = np.array([3, 3, 29, 0])
    assert same(to_values(take(vector, indices), 4), [values[index] for index in indices])
    fresh = [pool(column.type)[-1], None]
    expected = [*values[:7], fresh[0], *values[8:20], fresh[1], *values[21:]]
    assert same(to_values(replace_values(vector, 30, np.array([7, 20]), fresh), 30), expected)
    known, mask = pool(column.type)[0], np.arange(30) % 3 == 0
    filled = [
        from_values([known if value is None else value for value in side], column.type)
        for side in (values, others)
    ]
    data = choose_values(mask, filled[0].data, filled[1].data, column.type)
    found = to_values(Vector(column.type, data), 30)
    sides = [to_values(side, 30) for side in filled]
    assert same(found, [sides[0 if hit else 1][index] for index, hit in enumerate(mask)])


@pytest.mark.parametrize("column", SCHEMA.columns, ids=str)
def test_a_constant_vector_has_one_value_for_all_rows(column: Column) -> None:
    value = pool(column.type)[0]
    for one in (constant(value, column.type), constant(None, column.type), null_constant(column.type)):
        expected = [value if one.valid is None else None] * 5
        assert is_constant(one)
        assert same(to_values(one, 5), expected)
        assert not is_constant(full_length(one, 5)) and same(to_values(full_length(one, 5), 5), expected)
