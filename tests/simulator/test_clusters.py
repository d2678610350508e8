"""Clusters of tasks, and the search for the best cluster (P18, P19)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill_lab.simulator.clusters import logarithmic, scan, top_one, uniform


def test_golden_g7_priorities_of_1_to_100_have_the_published_clusters() -> None:
    assert uniform([1, 100], 2).pseudo == pytest.approx((1, 50.5))
    assert logarithmic([1, 100], 2).pseudo == pytest.approx((1, 10))
    assert logarithmic([1, 9.99, 10, 100], 2).member_of == (0, 0, 1, 1)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.integers(1, 12))
def test_members_are_within_the_ratio_of_their_cluster(priorities: list[float], count: int) -> None:
    clusters = logarithmic(priorities, count)
    ratio = (max(priorities) / min(priorities)) ** (1 / count)
    for priority, cluster in zip(priorities, clusters.member_of, strict=True):
        assert 1 - 1e-9 <= priority / clusters.pseudo[cluster] <= ratio * (1 + 1e-6)


@given(
    st.lists(
        st.tuples(st.floats(1e-3, 1e3), st.none() | st.integers(0, 9).map(float)), min_size=1, max_size=20
    )
)
def test_the_best_cluster_is_found_without_a_full_scan(cases: list[tuple[float, float | None]]) -> None:
    pseudo, heads = [p for p, _ in cases], [h for _, h in cases]
    scores = [p * (100 - h) for p, h in cases if h is not None]
    given_heads = np.array([np.nan if head is None else head for head in heads])
    found, looked = top_one(np.array(pseudo), given_heads, 100.0), scan(np.array(pseudo), given_heads, 100.0)
    assert found.score == looked.score == max(scores, default=-np.inf)
    assert (found.cluster < 0) == (looked.cluster < 0) == (not scores)
    assert found.looked_at <= 2 * looked.looked_at


def test_the_search_examines_few_pairs() -> None:
    random = np.random.default_rng(1)
    looked = [
        found.looked_at
        for _ in range(50)
        if (found := top_one(random.uniform(0, 1, 500), random.uniform(0, 99, 500), 100.0))
    ]
    assert np.mean(looked) < 60
