"""Pairs of doubles hold sums exactly, or report that they cannot."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.aggregates import exact as pairs

# Sums and products of these numbers neither overflow nor lose bits at the lower end.
doubles = st.one_of(
    st.floats(-1e100, 1e100, allow_nan=False).filter(lambda x: x == 0.0 or abs(x) > 1e-100),
    st.integers(-(10**6), 10**6).map(lambda cents: cents / 100),
)


def exact(values: list[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


@given(doubles, doubles)
def test_sum_and_product_of_two_doubles_are_exact_pairs(a: float, b: float) -> None:
    assert exact(list(pairs.two_sum(a, b))) == Fraction(a) + Fraction(b)
    assert exact(list(pairs.two_product(a, b))) == Fraction(a) * Fraction(b)


@given(st.lists(st.tuples(doubles, st.integers(0, 2)), max_size=20))
@example([(1e100, 0), (1.0, 0), (-1e100, 0)])
@example([(1e100, 0), (1.0, 0), (1e-100, 0)])
def test_group_sums_are_exact_or_flagged_as_inexact(rows: list[tuple[float, int]]) -> None:
    values, group = np.array([v for v, _ in rows]), np.array([g for _, g in rows], np.int64)
    high, low, holds = pairs.sum_by_group(values, np.zeros(len(rows)), group, 3)
    if holds:
        for number in range(3):
            wanted = exact([v for v, g in rows if g == number])
            assert exact([high[number], low[number]]) == wanted
            assert high[number] == float(wanted), "the first of the pair is the sum, rounded once"


@given(st.lists(doubles, min_size=1, max_size=12), st.data())
def test_differences_of_prefix_sums_equal_the_sums_of_spans(values: list[float], data: st.DataObject) -> None:
    begin = np.array([0, data.draw(st.integers(0, len(values))), len(values)])
    high, low, holds = pairs.prefixes(np.array(values), np.zeros(len(values)), begin)
    spans = [
        (k, lo, hi) for k in (0, 1) for hi in range(begin[k], begin[k + 1] + 1) for lo in range(begin[k], hi)
    ]
    if not holds or not spans:
        return
    rank, lo, hi = (np.array(column, np.int32) for column in zip(*spans, strict=True))
    sums, rests, doubt = pairs.pair_differences(high, low, lo, hi, rank)
    means, unsure = pairs.pair_quotients(sums, rests, (hi - lo).astype(np.int64))
    for i, (_, first, end) in enumerate(spans):
        wanted = exact(values[first:end])
        if not doubt[i]:
            assert exact([sums[i], rests[i]]) == wanted
            assert unsure[i] or means[i] == float(wanted / (end - first))
