"""Tasks of mill-E16 to mill-E19, and their counters."""

from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.mill.classify import (
    BFF,
    FAST,
    HVWT,
    LOADSTAR,
    Q_BAYES,
    RANDOM,
    SLOW,
    errors,
    over_random,
    walks,
)
from slicemill_lab.mill.e18 import risks_computed
from slicemill_lab.mill.e19 import LAGS, SEGMENTS, highway


def test_half_of_the_features_move_fast_and_half_slowly() -> None:
    values = walks(1, 50, 400).values
    assert values.min() >= 0 and values.max() <= 1
    steps = np.diff(values, axis=0).std(axis=(0, 1))
    # Reflection at the edges shortens the steps of a fast walk.
    assert 0.6 * FAST < steps[0] < FAST and 0.6 * FAST < steps[2] < FAST
    assert steps[[1, 3]] == pytest.approx([SLOW, SLOW], rel=0.05)


def test_means_and_speeds_of_features_are_crossed() -> None:
    problem = walks(1, 50, 10)
    # Features 0 and 1 are low in class 0, features 2 and 3 are low in class 1.
    assert problem.model.mean[0, :, 0].tolist() == [0.3, 0.3, 0.7, 0.7]
    assert problem.streams == 100


def test_errors_equal_those_of_an_independent_simulation() -> None:
    problems = [walks(seed, 1500, 60) for seed in range(6)]
    found = over_random(errors(problems, (RANDOM, Q_BAYES, BFF), (40, 50), 1))
    assert found[Q_BAYES] == pytest.approx([0.68, 0.58], abs=0.1)
    assert found[BFF] == pytest.approx([0.38, 0.36], abs=0.1)


def test_a_segment_has_sixteen_streams_and_lagged_features() -> None:
    problem = highway(3)
    assert problem.streams == 16 * SEGMENTS
    assert problem.model.shape == (SEGMENTS, 16 * (1 + LAGS), 2)
    # No transition crosses midnight: 21 days have 287 transitions each.
    assert problem.chains.counts.sum(axis=(-2, -1)).tolist() == [[21 * 287] * 16] * SEGMENTS


def test_risk_evaluations_are_counted_for_each_policy() -> None:
    observed = np.array([[True, True, False], [False, False, False]])
    assert risks_computed(RANDOM, observed) == 0
    assert risks_computed(LOADSTAR, observed) == 4
    assert risks_computed(HVWT, observed) == 2 + 2
    # Two tasks and six streams; then the task and its two other streams, then the task and its last stream.
    assert risks_computed(BFF, observed) == 2 + 6 + 3 + 2
