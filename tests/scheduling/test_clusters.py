"""Clusters of units, and the best of them (P18, P19)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.scheduling.clusters import logarithmic, top_one, uniform


def test_golden_g7_clusters_of_one_to_a_hundred() -> None:
    assert uniform([1, 100], 2).pseudo == pytest.approx((1, 50.5))
    assert logarithmic([1, 100], 2).pseudo == pytest.approx((1, 10))
    assert logarithmic([1, 9.99, 10, 100], 2).member_of == (0, 0, 1, 1)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.integers(1, 12))
def test_members_are_within_the_ratio_of_their_cluster(priorities: list[float], count: int) -> None:
    clusters = logarithmic(priorities, count)
    ratio = (max(priorities) / min(priorities)) ** (1 / count)
    for priority, cluster in zip(priorities, clusters.member_of, strict=True):
        assert 1 - 1e-9 <= priority / clusters.pseudo[cluster] <= ratio * (1 + 1e-6)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.none() | st.floats(0, 99)), min_size=1, max_size=20))
def test_the_best_cluster_is_found_without_looking_at_all(cases: list[tuple[float, float | None]]) -> None:
    pseudo, heads = [p for p, _ in cases], [h for _, h in cases]
    scores = [p * (100 - h) for p, h in cases if h is not None]
    found = top_one(pseudo, heads, 100)
    assert (found is None) == (not scores)
    if found is not None:
        assert found.score == max(scores)


def test_few_pairs_are_looked_at() -> None:
    random = np.random.default_rng(1)
    looked = [
        found.looked_at
        for _ in range(50)
        if (found := top_one(random.uniform(0, 1, 500).tolist(), random.uniform(0, 99, 500).tolist(), 100))
    ]
    assert len(looked) == 50 and np.mean(looked) < 60
