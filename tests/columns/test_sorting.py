"""Stable sort of compiled loops, compared with NumPy's order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slicemill.aggregates.udf.compiler.state import sorted_by
from slicemill.columns.order import sort_by

KEYS = st.lists(st.one_of(st.integers(-3, 3).map(float), st.just(float("nan")), st.floats()), max_size=80)


@given(KEYS)
def test_the_sort_is_stable_and_puts_nan_last_like_numpy(values: list[float]) -> None:
    keys = np.array(values, np.float64)
    order = np.arange(len(keys))
    sort_by(order, keys, 0, len(keys))
    assert order.tolist() == np.argsort(keys, kind="stable").tolist()


@given(st.lists(st.integers(-5, 5), max_size=200), st.integers(0, 200), st.integers(0, 200))
def test_only_the_given_range_is_sorted(values: list[int], first: int, last: int) -> None:
    keys = np.array(values, np.int64)
    start, end = sorted((min(first, len(keys)), min(last, len(keys))))
    order = np.arange(len(keys))[::-1].copy()
    expected = order.copy()
    expected[start:end] = order[start:end][np.argsort(keys[order[start:end]], kind="stable")]
    sort_by(order, keys, start, end)
    assert order.tolist() == expected.tolist()


def test_a_sort_by_a_second_key_keeps_the_order_of_the_first() -> None:
    keys = np.random.default_rng(1).integers(0, 9, (2, 1000))
    by_minor = sorted_by(np.arange(1000), keys[1])
    assert sorted_by(by_minor, keys[0]).tolist() == np.lexsort((keys[1], keys[0])).tolist()
