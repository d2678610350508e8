"""Least and greatest values: ranks in the order of the values, and the first of those that are equal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.panes.brute import aggregate, shown
from operators.panes.values import VALUES, arrow, doubles, plain
from slicemill import types as t
from slicemill.catalog.expressions import ColumnRef
from slicemill.operators.window.partial_aggregates import PartialExtreme, sortable, take_values
from slicemill.operators.window.spans import Spans
from slicemill.types import Type


def found(extreme: PartialExtreme, columns: Any, type_: Type, known: list[bool]) -> list[str]:
    """What single entries show."""
    count = len(known)
    one = np.arange(count, dtype=np.int32)
    spans = Spans(np.zeros(count, np.int64), np.zeros(count, np.int32), one, one + 1)
    index = extreme.index(columns, np.array([0, count]))
    return list(map(shown, plain(index.over(spans, np.array(known)), type_)))


@settings(max_examples=80)
@given(st.data(), st.sampled_from(list(VALUES)), st.permutations(range(8)), st.booleans())
def test_a_group_has_its_extreme_in_whatever_order_its_entries_come(
    data: st.DataObject, type_: Type, order: list[int], greatest: bool
) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], min_size=8, max_size=8))
    check_shuffled(values, type_, order, greatest)


@settings(max_examples=60)
@given(
    st.lists(st.none() | st.sampled_from([0.0, -0.0]) | doubles, min_size=8, max_size=8),
    st.permutations(range(8)),
    st.booleans(),
)
@example([0.0, -0.0, 0.0, -0.0, 0.0, 1.0, -1.0, -0.0], list(range(7, -1, -1)), False)
@example([0.0, -0.0, 0.0, -0.0, 0.0, 1.0, -1.0, -0.0], list(range(7, -1, -1)), True)
def test_of_two_zeros_the_first_is_shown(
    values: list[float | None], order: list[int], greatest: bool
) -> None:
    check_shuffled(values, t.DOUBLE, order, greatest)


def check_shuffled(values: list[Any], type_: Type, order: list[int], greatest: bool) -> None:
    extreme = PartialExtreme(ColumnRef("x", type_), greatest)
    group, mixed = np.array([0, 0, 0, 1, 1, 1, 1, 2]), np.array(order)
    lifted = extreme.lift(arrow(values, type_), 100 + np.arange(8))
    columns = extreme.reduce({f: take_values(c, mixed) for f, c in lifted.items()}, group[mixed], 3)
    parts = [values[:3], values[3:7], values[7:]]
    expected = [aggregate("max" if greatest else "min", part) for part in parts]
    known = [value is not None for value in expected]
    assert found(extreme, columns, type_, known) == list(map(shown, expected))


@given(st.lists(doubles, min_size=1, max_size=6), st.booleans())
@example([-math.inf, -1.7e308, -5e-324, 5e-324, 1.7e308, math.inf, math.nan], False)
def test_ranks_of_doubles_are_in_their_order(values: list[float], greatest: bool) -> None:
    ranks = PartialExtreme(ColumnRef("x", t.DOUBLE), greatest).lift(
        arrow(values, t.DOUBLE), np.arange(len(values))
    )["rank"]
    for a, first in zip(values, ranks.tolist(), strict=True):
        for b, second in zip(values, ranks.tolist(), strict=True):
            low, high = (second, first) if greatest else (first, second)
            assert (low < high) == (a == a and (b != b or a < b))


def test_only_columns_with_negative_zero_say_which_zero_came_first() -> None:
    extreme = PartialExtreme(ColumnRef("x", t.DOUBLE), greatest=False)
    plain_, signed = (extreme.lift(arrow(v, t.DOUBLE), np.arange(2)) for v in ([0.0, 1.0], [0.0, -0.0]))
    assert plain_.keys() == {"rank"} and signed.keys() == {"rank", "zero"}
    assert extreme.lift(arrow([-1], t.BIGINT), np.arange(1)).keys() == {"rank"}


@pytest.mark.parametrize("greatest", [False, True])
def test_parts_without_negative_zero_lie_between_those_with_it(greatest: bool) -> None:
    """Each part is later than the one before; the group of all of them shows the first zero of all."""
    extreme = PartialExtreme(ColumnRef("x", t.DOUBLE), greatest)
    for signs in ("+-", "-+", "+-+", "-++-", "++-", "-+-"):
        values = [0.0 if sign == "+" else -0.0 for sign in signs]
        lifted = [extreme.lift(arrow([v], t.DOUBLE), np.array([n])) for n, v in enumerate(values)]
        whole = extreme.joined(lifted)
        count = len(values)
        for first in range(count):
            rest = {field: column[first:] for field, column in whole.items()}
            together = extreme.reduce(rest, np.zeros(count - first, np.int64), 1)
            assert found(extreme, together, t.DOUBLE, [True]) == [shown(values[first])], signs


def test_every_type_with_an_order_can_be_kept() -> None:
    assert all(map(sortable, VALUES))
    assert not any(map(sortable, (t.PERIOD, t.MONTHS, t.NULL, t.ANY)))


@pytest.mark.parametrize("type_", list(VALUES), ids=str)
def test_what_was_not_asked_for_is_never_the_extreme(type_: Type) -> None:
    value = {t.BOOLEAN: True, t.VARCHAR: "a", t.BINARY: b"a", t.DOUBLE: -0.0}.get(type_, 1)
    for greatest in (False, True):
        extreme = PartialExtreme(ColumnRef("x", type_), greatest)
        whole = extreme.joined([extreme.missing(2), extreme.lift(arrow([value], type_), np.arange(1))])
        together = extreme.reduce(whole, np.zeros(3, np.int64), 1)
        assert found(extreme, together, type_, [True]) == [shown(plain(arrow([value], type_), type_)[0])]
