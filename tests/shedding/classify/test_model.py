"""Naive Bayes against its formula, and its parameters learnt from histories."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slicemill.errors import SlicemillError
from slicemill.extensions.classify.model import NaiveBayes, bins_between, learn, zero_one


def normal(x: float, mean: float, deviation: float) -> float:
    return math.exp(-0.5 * ((x - mean) / deviation) ** 2) / deviation / math.sqrt(2 * math.pi)


def test_posteriors_are_priors_times_densities() -> None:
    mean, deviation = np.array([[[0.0, 1.0], [5.0, 2.0]]]), np.array([[[1.0, 2.0], [1.0, 0.5]]])
    model = NaiveBayes(np.log([[0.2, 0.8]]), mean, deviation, zero_one(2))
    x = np.array([[0.3, 2.5]])
    joint = [
        prior
        * normal(0.3, mean[0, 0, c], deviation[0, 0, c])
        * normal(2.5, mean[0, 1, c], deviation[0, 1, c])
        for c, prior in enumerate((0.2, 0.8))
    ]
    assert model.posterior(x)[0] == pytest.approx(np.array(joint) / sum(joint))
    assert model.classify(x).tolist() == [int(np.argmax(joint))]


def test_the_loss_matrix_weighs_wrong_decisions() -> None:
    likely = NaiveBayes(np.log([[0.9, 0.1]]), np.zeros((1, 1, 2)), np.ones((1, 1, 2)), zero_one(2))
    missed = NaiveBayes(likely.log_prior, likely.mean, likely.deviation, np.array([[0.0, 20.0], [1.0, 0.0]]))
    x = np.zeros((1, 1))
    assert (likely.classify(x).tolist(), missed.classify(x).tolist()) == ([0], [1])


def test_means_deviations_and_priors_are_learnt() -> None:
    values = np.array([1.0, 3.0, 10.0, 14.0, np.nan]).reshape(-1, 1, 1)
    model = learn(values, np.array([0, 0, 1, 1, 1]).reshape(-1, 1), 2)
    assert model.mean[0, 0].tolist() == [2.0, 12.0]
    assert model.deviation[0, 0].tolist() == [1.0, 2.0]
    assert model.log_prior[0] == pytest.approx(np.log([0.5, 0.5]))


def test_a_class_without_examples_stays_possible() -> None:
    model = learn(np.array([1.0, 3.0]).reshape(-1, 1, 1), np.zeros((2, 1), np.int64), 2)
    assert np.isfinite(model.posterior(np.array([[2.0]]))).all()


def test_a_history_without_values_is_an_error() -> None:
    with pytest.raises(SlicemillError, match="nothing to learn from"):
        learn(np.full((3, 1, 1), np.nan), np.zeros((3, 1), np.int64), 2)


def test_a_constant_feature_has_bins() -> None:
    bins = bins_between(np.array([[4.0]]), np.array([[4.0]]), 5)
    assert bins.of(np.array([[4.0]])).tolist() == [[0]]
    assert bins.of(np.array([[-1.0]])).tolist() == [[0]]
    assert bins.of(np.array([[99.0]])).tolist() == [[4]]
