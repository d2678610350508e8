"""Approximate quantiles by ranges, against sorted values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.metrics.quality_of_service import Quantiles

value = st.floats(1e-6, 1e6)


@given(st.lists(value, min_size=1, max_size=200), st.sampled_from([0.0, 0.25, 0.5, 0.95, 0.99, 1.0]))
@settings(max_examples=60)
def test_a_quantile_is_at_most_one_percent_off(values: list[float], share: float) -> None:
    quantiles = Quantiles()
    quantiles.add(values)
    ordered = sorted(values)
    right = ordered[max(math.ceil(share * len(values)) - 1, 0)]
    assert quantiles.at(share) == pytest.approx(right, rel=0.0101)


@given(st.lists(st.tuples(value, st.integers(1, 5)), max_size=50), st.integers(0, 50))
@settings(max_examples=40)
def test_merged_parts_equal_the_whole_and_counts_are_repetitions(
    pairs: list[tuple[float, int]], at: int
) -> None:
    parts = [Quantiles(), Quantiles()]
    for part, some in zip(parts, (pairs[:at], pairs[at:]), strict=True):
        part.add([v for v, _ in some], [n for _, n in some])
    parts[0].merge(parts[1])
    whole = Quantiles()
    whole.add(np.repeat([v for v, _ in pairs], [n for _, n in pairs]))
    assert parts[0].counts == whole.counts


def test_there_is_no_quantile_without_values() -> None:
    assert math.isnan(Quantiles().at(0.5))
