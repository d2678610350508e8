"""Markov chains of features: golden values, and a count of the last transitions by hand (M50)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.classify.model import MarkovChains, chains


def test_golden_transitions_give_the_published_predictions() -> None:
    # G23: 1→1, 1→2, 1→2, 2→1, not all in one history.
    counted = MarkovChains(np.zeros((1, 1, 2, 2), np.int64))
    for before, after in ((0, 0), (0, 1), (0, 1), (1, 0)):
        counted.learn(np.array([[before]]), np.array([[after]]), np.array([[True]]))
    np.testing.assert_allclose(counted.matrices[0, 0], [[1 / 3, 2 / 3], [1, 0]])
    p = counted.predict(np.array([[[1.0, 0.0]]]))
    np.testing.assert_allclose(p[0, 0], [1 / 3, 2 / 3])
    np.testing.assert_allclose(counted.predict(p)[0, 0], [7 / 9, 2 / 9])


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=25),
    st.sampled_from([None, 1, 4]),
)
def test_matrices_are_shares_of_the_last_observed_transitions(
    steps: list[tuple[int, int, bool]], window: int | None
) -> None:
    learnt = MarkovChains(np.zeros((1, 1, 3, 3), np.int64), window)
    for before, after, seen in steps:
        learnt.learn(np.array([[before]]), np.array([[after]]), np.array([[seen]]))
    counted = [(before, after) for before, after, seen in steps if seen]
    last = Counter(counted if window is None else counted[-window:])
    for i in range(3):
        total = sum(last[i, j] for j in range(3))
        row = [last[i, j] / total if total else float(i == j) for j in range(3)]
        assert learnt.matrices[0, 0, i].tolist() == row


def test_transitions_across_gaps_of_a_history_do_not_count() -> None:
    bins = np.array([0, 1, 1]).reshape(-1, 1, 1)
    moves = np.array([False, False, True]).reshape(-1, 1, 1)
    assert chains(bins, 2, moves=moves).counts[0, 0].tolist() == [[0, 0], [0, 1]]


def test_shares_count_the_bins_before_each_transition() -> None:
    bins = np.array([[0, 0], [1, 0], [0, 0], [0, 0]]).reshape(-1, 1, 2)
    moves = np.ones(bins.shape, np.bool_)
    moves[..., 1] = False
    assert chains(bins, 2, moves=moves).shares()[0].tolist() == [[2 / 3, 1 / 3], [0.5, 0.5]]


def test_movement_variance_is_the_variance_of_differences() -> None:
    bins = np.random.default_rng(3).integers(0, 4, (50, 2, 1))
    assert chains(bins, 4).movement_variance() == pytest.approx(np.diff(bins, axis=0).var(axis=0))
