"""Priorities of operators shared by several queries (P26, P27)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill_lab.charts.sharing import SharedSegment, best_single, defining_tree, set_priority


def test_golden_g13_to_g15_have_the_published_priority_defining_trees() -> None:
    first = [SharedSegment(0.5, 2), SharedSegment(0.3, 2), SharedSegment(0.05, 5)]
    tree = defining_tree(first, 1)
    assert (set(tree.members), tree.priority) == ({0, 1}, pytest.approx(0.8 / 3))
    assert (best_single(first), set_priority(first, 1)) == pytest.approx((0.25, 0.85 / 7))
    second = [SharedSegment(1, 2), *[SharedSegment(0.45, 1.1)] * 10]
    assert defining_tree(second, 1).priority == pytest.approx(2.25)
    third = [SharedSegment(1, 10), SharedSegment(9.9, 100), SharedSegment(0.05, 1.01)]
    assert set_priority(third, 1) == pytest.approx(0.1004495, rel=1e-6)
    tree = defining_tree(third, 1)
    assert (set(tree.members), tree.priority) == ({0, 2}, pytest.approx(0.1048951, rel=1e-6))


@settings(max_examples=80)
@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 5)), min_size=1, max_size=6))
def test_no_subset_has_a_greater_priority_than_the_defining_tree(cases: list[tuple[float, float]]) -> None:
    segments = [SharedSegment(weight, 1 + rest) for weight, rest in cases]
    best = max(
        set_priority(subset, 1)
        for size in range(1, len(segments) + 1)
        for subset in combinations(segments, size)
    )
    tree = defining_tree(segments, 1)
    assert tree.priority == pytest.approx(best)
    assert tree.priority >= max(best_single(segments), set_priority(segments, 1)) - 1e-12
