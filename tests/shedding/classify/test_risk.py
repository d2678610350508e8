"""Risk over samples against the definitions over all vectors, and the theorems of M51 and M52."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.classify.model import decide, decide_knowing

from .plain import Task

BINS = 2
densities = st.floats(0.01, 3.0)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    classes, features = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    prior = [draw(st.floats(0.1, 1.0)) for _ in range(classes)]
    density = [[[draw(densities) for _ in range(BINS)] for _ in range(classes)] for _ in range(features)]
    # With shares of a quarter, 4**k samples contain every vector in proportion to its probability.
    p = [[share / 4, 1 - share / 4] for share in (draw(st.integers(0, 4)) for _ in range(features))]
    any_loss = draw(st.booleans())
    loss = [
        [draw(st.floats(0.0, 2.0)) if any_loss and i != j else float(i != j) for j in range(classes)]
        for i in range(classes)
    ]
    return Task(prior, density, p, loss)


def all_samples(task: Task) -> npt.NDArray[np.float64]:
    """Return log densities (k, C, h) of samples with every vector as often as it is likely."""
    drawn = [[0] * round(4 * p[0]) + [1] * round(4 * p[1]) for p in task.p]
    vectors = list(product(*drawn))
    return np.log(
        [
            [[density[c][x[f]] for x in vectors] for c in range(len(task.prior))]
            for f, density in enumerate(task.density)
        ]
    )


def joint_of(task: Task, sampled: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.log(task.prior)[:, np.newaxis] + sampled.sum(axis=0)


@settings(max_examples=60)
@given(tasks())
def test_risks_equal_their_definitions(task: Task) -> None:
    said, risk, observational = decide(joint_of(task, all_samples(task)), np.array(task.loss))
    assert risk == pytest.approx(task.risk(task.best()), abs=1e-12)
    assert task.risk(said) == pytest.approx(risk, abs=1e-12)
    assert observational == pytest.approx(task.observational(), abs=1e-12)
    # G24: the Bayes risk is the optimal risk plus the observational risk, which is never negative.
    assert risk == pytest.approx(task.optimal() + observational, abs=1e-12)
    assert observational >= 0


@settings(max_examples=60)
@given(tasks(), st.data())
def test_qualities_equal_their_definitions(task: Task, data: st.DataObject) -> None:
    feature = data.draw(st.integers(0, len(task.p) - 1))
    expected = [data.draw(densities) for _ in task.prior]
    sampled, loss = all_samples(task), np.array(task.loss)
    joint = joint_of(task, sampled)
    _, risk, observational = decide(joint, loss)
    _, risk_after, after = decide_knowing(joint, sampled[feature], np.log(expected), loss)
    assert risk - risk_after == pytest.approx(task.q_bayes(feature, expected), abs=1e-12)
    assert observational - after == pytest.approx(task.q_obs(feature, expected), abs=1e-12)


@settings(max_examples=60)
@given(tasks(), st.data())
def test_an_observation_reduces_the_observational_risk_on_average(task: Task, data: st.DataObject) -> None:
    feature = data.draw(st.integers(0, len(task.p) - 1))
    after = sum(
        share * task.knowing(feature, [density[b] for density in task.density[feature]]).observational()
        for b, share in enumerate(task.p[feature])
    )
    assert after <= task.observational() + 1e-12


@settings(max_examples=40)
@given(tasks())
def test_a_fully_observed_task_has_only_the_optimal_risk(task: Task) -> None:
    # G24: the same vector at every sample.
    sampled = np.repeat(all_samples(task)[:, :, :1], 7, axis=2)
    loss = np.array(task.loss)
    joint = joint_of(task, sampled)
    assert decide(joint, loss)[2] == 0.0
    for f in range(len(sampled)):
        known = np.ascontiguousarray(sampled[f, :, 0])
        assert decide_knowing(joint, sampled[f], known, loss)[2] == pytest.approx(0.0, abs=1e-12)


def test_with_zero_one_loss_the_risk_is_the_probability_of_a_wrong_decision() -> None:
    # 5.2: posterior 3 to 1.
    said, risk, observational = decide(np.log([[0.25], [0.75]]), 1 - np.eye(2))
    assert (said, observational) == (1, 0.0)
    assert risk == pytest.approx(0.25)


def test_q_bayes_can_prefer_a_stream_without_observational_gain() -> None:
    # The pitfall of M51. Class 0 is right for every value of feature 0: an observation gains nothing, but at
    # the expected value the risk happens to be low. Feature 1 decides, and its mean carries no information.
    task = Task(
        prior=[0.5, 0.5],
        density=[[[1.0, 1.2], [0.9, 1.0]], [[3.0, 0.5], [0.5, 1.0]]],
        p=[[0.5, 0.5], [0.5, 0.5]],
        loss=[[0, 1], [1, 0]],
    )
    sure, unsure = [1.0, 0.01], [1.0, 1.0]
    assert task.q_bayes(0, sure) > task.q_bayes(1, unsure)
    assert task.q_obs(1, unsure) == pytest.approx(task.observational())
    assert math.isclose(task.knowing(1, unsure).observational(), 0.0, abs_tol=1e-12)
