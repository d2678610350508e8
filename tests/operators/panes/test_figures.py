"""What panes make of an aggregate for any span of entries, against all values of the span."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.panes.brute import aggregate, shown
from operators.panes.values import NUMBERS, VALUES, arrow, call, plain
from slicemill import types as t
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.queries import AggregateCall
from slicemill.errors import SlicemillError
from slicemill.functions.values import EXACT
from slicemill.operators.window.pane_answers import PaneAggregate, PaneView, pane_aggregate_of
from slicemill.operators.window.pane_state import concat_partials, empty_partials, from_table, to_table
from slicemill.operators.window.partial_aggregates import Columns
from slicemill.operators.window.spans import Spans
from slicemill.operators.window.spec import KEPT, MEANS
from slicemill.types import Column, Kind, Type

Entries = list[list[Any]]  # the values of each


def names_for(type_: Type) -> list[str]:
    """The aggregates that panes answer for a type."""
    return [name for name in KEPT if pane_aggregate_of(call(name, type_)) is not None]


def part_of(figures: list[PaneAggregate], type_: Type, entries: Entries, seen: int) -> Columns:
    """Entries as a run makes them, stored and read again; `seen` tuples came before."""
    flat = [value for values in entries for value in values]
    group = np.repeat(np.arange(len(entries)), list(map(len, entries)))
    column, indices = arrow(flat, type_), seen + np.arange(len(flat))
    made: dict[str, Any] = {name: np.zeros(len(entries), np.int64) for name in ("start", "key", "pattern")}
    made |= {"seq": np.arange(len(entries)), "rows": np.array(list(map(len, entries)), np.int64)}
    for partial in {p.name: p for figure in figures for p in figure.partials}.values():
        reduced = partial.reduce(partial.lift(column, indices), group, len(entries))
        made |= {f"{partial.name}|{field}": values for field, values in reduced.items()}
    return from_table(to_table(made))


def view_of_keys(figures: list[PaneAggregate], type_: Type, keys: list[Entries], cuts: set[int]) -> PaneView:
    """The entries of all keys, those from one cut to the next made by one run."""
    entries = [values for key in keys for values in key]
    borders = sorted({0, len(entries), *(cut for cut in cuts if cut < len(entries))})
    parts, seen = [empty_partials()], 0
    for first, last in pairwise(borders):
        parts.append(part_of(figures, type_, entries[first:last], seen))
        seen += sum(map(len, entries[first:last]))
    partials = {p.name: p for figure in figures for p in figure.partials}
    begin = np.array([0, *accumulate(map(len, keys))], np.int64)
    return PaneView(np.arange(len(keys)), begin, concat_partials(parts, partials), partials)


def all_spans(keys: list[Entries]) -> tuple[Spans, list[list[Any]]]:
    """Every span of every key, empty ones too, and the values in it."""
    rows, inside, begin = [], [], 0
    for rank, entries in enumerate(keys):
        for lo in range(len(entries) + 1):
            for hi in range(lo, len(entries) + 1):
                rows.append((rank, begin + lo, begin + hi))
                inside.append([value for values in entries[lo:hi] for value in values])
        begin += len(entries)
    rank, lo, hi = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    return Spans(np.zeros(len(rows), np.int64), rank, lo, hi), inside


def fits(value: Any, type_: Type) -> bool:
    if value is None:
        return True
    if type_.kind is Kind.BIGINT:
        return bool(-(2**63) <= value < 2**63)
    return type_.kind is not Kind.DECIMAL or len(value.as_tuple().digits) <= (type_.precision or 0)


def rounded(mean: Decimal | None, type_: Type) -> Decimal | None:
    """Return a mean with the digits of its column, half away from zero."""
    if mean is None:
        return None
    assert type_.scale is not None
    return mean.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, EXACT)


def check(type_: Type, keys: list[Entries], cuts: set[int]) -> None:
    spans, inside = all_spans(keys)
    for name in names_for(type_):
        figure, result = pane_aggregate_of(call(name, type_)), BUILTINS[name].result(type_)
        assert figure is not None
        expected = [aggregate(name, values) for values in inside]
        if name in MEANS and result.kind is Kind.DECIMAL:
            expected = [rounded(mean, result) for mean in expected]
        view = view_of_keys([figure], type_, keys, cuts)
        if not all(fits(value, result) for value in expected):
            with pytest.raises(SlicemillError, match=r"does not fit"):
                figure.over(view, spans)
            continue
        found = figure.over(view, spans)
        assert list(map(shown, plain(found, result))) == list(map(shown, expected)), name


def keys_of(type_: Type) -> st.SearchStrategy[list[Entries]]:
    value = st.one_of(st.none(), VALUES[type_], VALUES[type_])
    return st.lists(st.lists(st.lists(value, min_size=1, max_size=4), max_size=5), min_size=1, max_size=3)


cuts = st.sets(st.integers(1, 8), max_size=3)
some = settings(max_examples=25)


@pytest.mark.parametrize("type_", [type_ for type_ in VALUES if type_.kind not in NUMBERS], ids=str)
@some
@given(st.data())
def test_counts_extremes_and_ends_of_spans(type_: Type, data: st.DataObject) -> None:
    check(type_, data.draw(keys_of(type_)), data.draw(cuts))


@some
@given(keys_of(t.INT), cuts)
def test_figures_of_ints(keys: list[Entries], cuts: set[int]) -> None:
    check(t.INT, keys, cuts)


@some
@given(keys_of(t.BIGINT), cuts)
@example([[[2**62], [2**62, 2**62], [-(2**62)]]], {1})  # passes 64 bits on the way only, or in some spans
@example([[[-(2**63)]]], set())  # the least BIGINT is one
@example([[[-(2**63)], [None]], [[2**63 - 1]]], {2})
@example([[[None], [None, None]], []], set())
def test_figures_of_bigints(keys: list[Entries], cuts: set[int]) -> None:
    check(t.BIGINT, keys, cuts)


@some
@given(keys_of(t.DOUBLE), cuts)
@example([[[-0.0]]], set())
@example([[[0.0], [-0.0], [0.0]], [[-0.0, 0.0], [0.0, -0.0]]], {1, 2, 4})
@example([[[1.0, 0.0], [-0.0]], [[0.0], [-1.0, -0.0]]], {1})  # a part without -0.0 before one with it
@example([[[-0.0], [0.0], [None], [0.0]]], {1, 2})  # and behind it
@example([[[math.nan], [math.inf], [-math.inf], [1.0]]], {2})
@example([[[1.7e308, 1.7e308], [-1.7e308]], [[5e-324], [1e300]]], set())
def test_figures_of_doubles(keys: list[Entries], cuts: set[int]) -> None:
    check(t.DOUBLE, keys, cuts)


@pytest.mark.parametrize("type_", [t.decimal(5, 2), t.decimal(20, 0)], ids=str)
@some
@given(st.data())
def test_figures_of_decimals(type_: Type, data: st.DataObject) -> None:
    check(type_, data.draw(keys_of(type_)), data.draw(cuts))


@some
@given(keys_of(t.decimal(38, 2)), cuts)
@example([[[Decimal("123456789012345678901234567890123456.78")], [Decimal("0.01")]]], set())  # not 28 digits
@example([[[Decimal("999999999999999999999999999999999999.99")]]], set())  # the greatest
@example([[[Decimal("999999999999999999999999999999999999.99")], [Decimal("0.01")]]], set())  # one more
@example([[[Decimal("1.50")], [Decimal("999999999999999999999999999999999999.99")]], [[None]]], {1})
def test_figures_of_the_widest_decimals(keys: list[Entries], cuts: set[int]) -> None:
    check(t.decimal(38, 2), keys, cuts)


@given(keys_of(t.INT), cuts)
@some
def test_count_of_all_counts_rows(keys: list[Entries], cuts: set[int]) -> None:
    figure = pane_aggregate_of(AggregateCall("count", (), False, (Column("r", t.BIGINT),)))
    assert figure is not None and figure.partials == ()
    spans, inside = all_spans(keys)
    assert figure.over(view_of_keys([figure], t.INT, keys, cuts), spans).to_pylist() == list(map(len, inside))


def test_calls_that_need_more_than_partials_have_no_figure() -> None:
    for name in sorted(BUILTINS.keys() - KEPT.keys()):
        assert pane_aggregate_of(call(name, t.BIGINT)) is None
    two = AggregateCall("min", (call("min", t.INT).arguments * 2), False, (Column("r", t.INT),))
    assert pane_aggregate_of(two) is None
