"""The three-stream case study: published figures with their errata (S16, E4-E7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill_lab.slice.analysis.join_tree import (
    PULL_UP_CPU,
    JoinTree,
    isolated_cpu,
    memory_over_isolated,
    memory_over_pull_up,
    sliced_cpu,
    swept,
)

shares = st.floats(0.05, 1)


def test_memory_of_the_published_point_in_mb() -> None:
    tree = JoinTree()
    found = [plan.memory / 1000 for plan in (tree.query_1(), tree.query_2(), tree.pull_up(), tree.sliced())]
    assert found == pytest.approx([75.8, 2253.375, 6484.5, 2308.21])
    assert tree.isolated().memory / 1000 == pytest.approx(2329.175)


def test_comparisons_of_the_published_point_in_millions() -> None:
    tree = JoinTree()
    found = [plan.cpu / 1e6 for plan in (tree.query_1(), tree.query_2(), tree.pull_up(), tree.sliced())]
    assert found == pytest.approx([187.64, 5633.25, 27227.88, 6422.66], abs=0.01)
    assert tree.isolated().cpu / 1e6 == pytest.approx(5820.89, abs=0.01)
    assert tree.sliced().union / 1e6 == pytest.approx(594.9)


@given(m=shares, n=shares)
def test_the_closed_forms_are_the_dominant_terms(m: float, n: float) -> None:
    tree = swept(m, n)
    sliced, isolated, above = tree.sliced(), tree.isolated(), tree.pull_up()
    assert sliced.memory / isolated.memory == pytest.approx(memory_over_isolated(m, n), rel=0.02)
    assert sliced.memory / above.memory == pytest.approx(memory_over_pull_up(m, n), rel=0.02)
    assert sliced.cpu / 60e6 == pytest.approx(sliced_cpu(m, n), rel=1e-3)
    assert isolated.cpu / 60e6 == pytest.approx(isolated_cpu(m, n), rel=1e-3)
    assert above.cpu / 60e6 == pytest.approx(PULL_UP_CPU, rel=1e-5)
