"""Sums of spans against exact fractions, whatever the values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.aggregates.exact import span_variances
from slicemill.catalog.expressions import ColumnRef
from slicemill.operators.window.partial_aggregates import PartialSum
from slicemill.operators.window.spans import Spans
from slicemill.types import BIGINT, DOUBLE

doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**6), 10**6).map(lambda cents: cents / 100),
)
whole = st.one_of(st.integers(-10, 10), st.integers(-(2**63), 2**63 - 1))


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def halves(count: int) -> tuple[np.ndarray, int]:
    """Rows two and two in a group, as a pane would have them."""
    return np.arange(count) // 2, -(-count // 2)


def all_spans(count: int) -> Spans:
    pairs = [(lo, hi) for lo in range(count) for hi in range(lo, count + 1)]
    lo, hi = (np.array(indices, np.int32) for indices in zip(*pairs, strict=True))
    return Spans(np.zeros(len(lo), np.int64), np.zeros(len(lo), np.int32), lo, hi)


def totals(sum_: PartialSum, column: pa.Array, spans: Spans):  # type: ignore[no-untyped-def]
    group, count = halves(len(column))
    columns = sum_.reduce(sum_.lift(column, np.arange(len(column))), group, count)
    return sum_.index(columns, np.array([0, count])).over(spans)


@settings(max_examples=60)
@given(st.lists(doubles, min_size=1, max_size=8))
@example([1e308, 1e308, -1e308, -1e308])
@example([1e300, 1.0, 1e-300, -1e300])
@example([0.1, 0.2, 0.3, 5e-324])
@example([-(2.0**-60), 0.0, 2.0**100, 2.0**-60, 1.0, 0.0])
def test_sums_and_means_of_doubles_are_rounded_once(values: list[float]) -> None:
    spans = all_spans(halves(len(values))[1])
    found = totals(PartialSum(ColumnRef("x", DOUBLE)), pa.array(values), spans)
    count = np.minimum(2 * spans.hi, len(values)) - 2 * spans.lo
    parts = [values[2 * lo : 2 * hi] for lo, hi in zip(spans.lo, spans.hi, strict=True)]
    exact = [sum(map(Fraction, part), Fraction(0)) for part in parts]
    assert found.doubles().tolist() == [nearest(e) for e in exact]
    means = [nearest(e / len(part)) for e, part in zip(exact, parts, strict=True) if part]
    assert found.means(count.astype(np.int64))[count > 0].tolist() == means


@settings(max_examples=60)
@given(st.lists(st.one_of(whole, st.none()), min_size=1, max_size=8))
@example([2**62, 2**62, 2**62])
def test_sums_means_and_variances_of_whole_numbers_are_exact(values: list[int | None]) -> None:
    spans = all_spans(halves(len(values))[1])
    column = pa.array(values, pa.int64())
    first, second = (totals(PartialSum(ColumnRef("x", BIGINT), degree), column, spans) for degree in (1, 2))
    parts = [
        [v for v in values[2 * lo : 2 * hi] if v is not None]
        for lo, hi in zip(spans.lo, spans.hi, strict=True)
    ]
    assert first.wide().tolist() == [sum(part) for part in parts]
    count = np.array([len(part) for part in parts])
    assert first.means(count)[count > 0].tolist() == [sum(part) / len(part) for part in parts if part]
    expected = []
    for part in parts:
        n, ones, twos = len(part), sum(part), sum(v * v for v in part)
        expected.append(nearest(Fraction(n * twos - ones * ones, n * (n - 1))) if n > 1 else None)
    found = span_variances(first, second, count, 1).tolist()
    assert [v for v, n in zip(found, count, strict=True) if n > 1] == [v for v in expected if v is not None]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_leaves_with_its_span(value: float) -> None:
    spans = Spans(np.zeros(2, np.int64), *(np.array(p, np.int32) for p in ([0, 0], [0, 1], [1, 2])))
    found = totals(PartialSum(ColumnRef("x", DOUBLE)), pa.array([1.0, value, 2.0]), spans).doubles()
    assert repr(found.tolist()) == repr([value, 2.0])
