"""Partials of single rows, put together in any order: how many are known, and the first and last of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.panes.brute import shown
from operators.panes.values import VALUES, arrow, plain
from slicemill import types as t
from slicemill.catalog.expressions import ColumnRef
from slicemill.operators.window.partial_aggregates import (
    CountIndex,
    EdgeValue,
    EdgeValueIndex,
    NonNullCount,
    ValueList,
    take_values,
)
from slicemill.operators.window.spans import Spans
from slicemill.types import Type


def spans(*pairs: tuple[int, int]) -> Spans:
    lo, hi = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    return Spans(np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int32), lo, hi)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(list(VALUES)), st.permutations(range(8)))
def test_groups_have_their_first_and_last_rows_in_whatever_order_they_come(
    data: st.DataObject, type_: Type, order: list[int]
) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], min_size=8, max_size=8))
    group = np.array([0, 0, 0, 1, 1, 1, 1, 2])
    members = [[0, 1, 2], [3, 4, 5, 6], [7]]
    indices, column = np.arange(8), arrow(values, type_)
    mixed = np.array(order)
    for last in (False, True):
        edge = EdgeValue(ColumnRef("x", type_), last)
        lifted = edge.lift(column, 100 + indices)
        shuffled = {field: take_values(array, mixed) for field, array in lifted.items()}
        reduced = edge.reduce(shuffled, group[mixed], 3)
        chosen = [values[own[-1 if last else 0]] for own in members]
        assert list(map(shown, plain(reduced["value"], type_))) == list(map(shown, chosen))
    known = NonNullCount(ColumnRef("x", type_))
    counted = known.reduce({"n": known.lift(column, indices)["n"][mixed]}, group[mixed], 3)["n"]
    assert counted.tolist() == [sum(values[index] is not None for index in own) for own in members]


def test_counts_and_edges_of_spans() -> None:
    asked = spans((0, 0), (0, 3), (1, 2), (3, 3))
    assert CountIndex(np.array([2, 0, 5])).over(asked).tolist() == [0, 7, 0, 0]
    values = pa.array(["a", None, "c"])
    assert EdgeValueIndex(values, last=False).over(asked).to_pylist() == [None, "a", None, None]
    assert EdgeValueIndex(values, last=True).over(asked).to_pylist() == [None, "c", None, None]
    assert EdgeValueIndex(values, last=True).over(spans((0, 1), (1, 3))).to_pylist() == ["a", "c"]


def test_more_than_127_rows_are_counted() -> None:
    """Single rows are counted in bytes, groups are not."""
    known = NonNullCount(ColumnRef("x", t.INT))
    many = known.lift(pa.array([1] * 300, pa.int32()), np.arange(300))
    assert known.reduce(many, np.zeros(300, np.int64), 1)["n"].tolist() == [300]


@pytest.mark.parametrize("type_", list(VALUES), ids=str)
def test_what_was_not_asked_for_is_unknown_and_goes_together_with_what_was(type_: Type) -> None:
    expr = ColumnRef("x", type_)
    column = arrow([None], type_)
    for partial in (NonNullCount(expr), EdgeValue(expr, last=True), ValueList(expr)):
        lifted = partial.lift(column, np.arange(1))
        whole: Any = partial.joined([partial.missing(2), lifted])
        assert all(len(array) == 3 for array in whole.values()) and whole.keys() == lifted.keys()
        if "value" in whole:
            assert plain(whole["value"], type_) == [None] * 3


def test_names_tell_partials_of_different_things_apart() -> None:
    a, b = ColumnRef("a", t.INT), ColumnRef("a", t.BIGINT)
    partials = [NonNullCount(a), NonNullCount(b), EdgeValue(a, False), EdgeValue(a, True), ValueList(a)]
    assert len({partial.name for partial in partials}) == len(partials)
    assert NonNullCount(a).name == NonNullCount(ColumnRef("a", t.INT)).name


def test_single_values_stay_as_they_are() -> None:
    values = ValueList(ColumnRef("x", t.VARCHAR))
    column = pa.array(["b", None, "a"])
    lifted = values.lift(column, np.arange(3))
    assert values.index(lifted, np.array([0, 3])).to_pylist() == ["b", None, "a"]
    with pytest.raises(AssertionError, match="stay single"):
        values.reduce(lifted, np.zeros(3, np.int64), 1)
