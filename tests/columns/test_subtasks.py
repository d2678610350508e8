"""Subtask of a key: equal keys have the same subtask, in every process, run and version."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns.keys import stripes_of, subtasks_of

INTS = st.sampled_from([None, 0, 1, -1, 7, 2**31 - 1])
TEXTS = st.sampled_from([None, "", "a", "b", "0", "None"])
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.0, math.nan, -math.nan, math.inf])
TYPES = (pa.int32(), pa.string(), pa.float64())


def columns(rows: list[Any], width: int) -> list[pa.Array]:
    return [pa.array([row[index] for row in rows], TYPES[index]) for index in range(width)]


def canonical(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in key)


@given(st.lists(st.tuples(INTS, TEXTS, FLOATS), max_size=20), st.integers(1, 3), st.integers(1, 70))
def test_equal_keys_are_in_one_subtask(rows: list[Any], width: int, count: int) -> None:
    subtasks = subtasks_of(columns(rows, width), len(rows), count)
    placed: dict[Any, int] = {}
    for row, subtask in zip(rows, subtasks.tolist(), strict=True):
        assert placed.setdefault(canonical(row[:width]), subtask) == subtask < count


@given(st.lists(INTS, min_size=1, max_size=20), st.integers(2, 70))
def test_integers_of_any_width_have_the_same_subtask(values: list[int | None], count: int) -> None:
    narrow, wide = (
        subtasks_of([pa.array(values, kind)], len(values), count) for kind in (pa.int32(), pa.int64())
    )
    assert narrow.tolist() == wide.tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(5_000)),
        pa.array(np.arange(5_000) * 1_000_000, pa.timestamp("us", tz="UTC")),
        pa.array(np.arange(5_000) * 0.25),
        pa.array([f"item {n}" for n in range(5_000)]),
        pa.array([str(n).encode() for n in range(5_000)]),
        pa.array([Decimal(n) / 4 for n in range(5_000)], pa.decimal128(12, 2)),
    ],
    ids=str,
)
def test_keys_are_spread_evenly_over_subtasks(column: pa.Array) -> None:
    rows = np.bincount(subtasks_of([column], 5_000, 8), minlength=8)
    # The mean is 625, with a standard deviation of 23 for random keys.
    assert rows.min() > 500 and rows.max() < 750


def test_the_subtask_of_a_key_never_changes() -> None:
    """State is stored by subtask, so a change would make stored state unreachable."""
    keys = [pa.array([1, 2, None, 4]), pa.array(["x", "y", None, ""]), pa.array([0.5, -0.0, None, math.nan])]
    assert subtasks_of(keys, 4, 1_000).tolist() == [504, 904, 574, 719]


def test_without_keys_all_rows_are_in_one_subtask() -> None:
    assert len(set(subtasks_of([], 3, 5).tolist())) == 1


@given(
    st.integers(0, 2**42),
    st.sampled_from([1, 2, 3, 256, 512]),
    st.integers(1, 64),
    st.integers(1, 50),
)
def test_stripes_of_any_range_of_a_stream_have_even_sizes(
    first: int, step: int, subtasks: int, turns: int
) -> None:
    """Sizes differ by few rows, of the order of the logarithm of their number.

    Numbers that an operator has fanned out have steps between them.
    """
    seqs = first + step * np.arange(subtasks * turns)
    rows = np.bincount(stripes_of(seqs, subtasks), minlength=subtasks)
    assert len(rows) == subtasks
    assert rows.max() <= turns + 1 + math.log2(len(seqs))
