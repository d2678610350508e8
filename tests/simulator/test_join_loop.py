"""Window joins in the simulator: every processing order gives the same pairs (P3, P22, P23)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill_lab.simulator.join_loop import (
    JoinWork,
    join_tasks,
    pair_objectives,
    simulate_joins,
    window_joins,
)


def by_definition(work: JoinWork) -> set[tuple[int, int, int]]:
    return {
        (query, i, j)
        for query, (share, window) in enumerate(zip(work.percent, work.window, strict=True))
        for i, left in enumerate(work.left)
        for j, right in enumerate(work.right)
        if max(work.left_draws[i], work.right_draws[j], work.draws[i, j]) <= share
        and abs(left - right) <= window
    }


@settings(max_examples=25)
@given(
    st.integers(0, 999), st.sampled_from(["hr", "bsd", "fcfs", "slices", "lsf"]), st.sampled_from([0.3, 3.0])
)
def test_every_policy_finds_each_pair_of_the_definition_once(seed: int, policy: str, load: float) -> None:
    work = window_joins(load, seed, queries=3, tuples=12)
    pairs = simulate_joins(work, policy)
    found = list(zip(pairs.query.tolist(), pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == by_definition(work)
    arrived = np.maximum(work.left[pairs.left], work.right[pairs.right])
    # The later tuple passes its select and the join and, with its partner, the projection.
    assert np.all(pairs.departure - arrived >= 3 * work.cost[pairs.query] - 1e-9)
    assert np.all(np.diff(pairs.departure) > 0)


def test_a_single_pair_has_a_slowdown_of_one() -> None:
    ones = np.ones(1, np.int64)
    work = JoinWork(
        np.zeros(1), np.array([3.0]), np.ones(1), np.array([100]), np.array([5.0]),
        np.ones((1, 1), np.uint8), ones, ones,
    )  # fmt: skip
    pairs = simulate_joins(work, "hr")
    assert pairs.departure.tolist() == [6.0]
    assert pair_objectives(work, pairs) == pytest.approx(
        {"mean response": 3, "mean slowdown": 1, "l2 response": 3, "l2 slowdown": 1}
    )


def test_segments_expect_the_actual_number_of_pairs() -> None:
    work = window_joins(0.5, 1, queries=40, tuples=400)
    expected = sum(float(task.segment.selectivity) for task in join_tasks(work)) * 400
    assert len(simulate_joins(work, "hr").query) == pytest.approx(expected, rel=0.1)


def test_only_policies_with_a_compiled_form_can_run() -> None:
    with pytest.raises(ValueError, match="greedy has no compiled form"):
        simulate_joins(window_joins(0.5, 1, queries=2, tuples=3), "greedy")
