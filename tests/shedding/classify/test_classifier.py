"""Classifier over time units: predictions, lags, forced observations, and stored state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from slicemill.extensions.classify.classifier import Decisions, Settings, TaskClassifier
from slicemill.extensions.classify.model import bins_between, chains, learn
from slicemill.extensions.classify.policies import POLICIES
from support.stored import stored

Floats = npt.NDArray[np.float64]
TASKS, FEATURES, BINS = 3, 2, 6


def history(seed: int, length: int = 120) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return random walks between 0 and 1, and the class determined by their mean."""
    random = np.random.default_rng(seed)
    steps = random.normal(0, 0.15, (length, TASKS, FEATURES)).cumsum(axis=0) + 0.5
    values = 1 - np.abs(1 - np.mod(steps, 2))
    return values, (values.mean(axis=2) > 0.5).astype(np.int64)


def classifier(policy: str, settings: Settings, window: int | None = None) -> TaskClassifier:
    values, labels = history(1)
    lagged = np.concatenate([np.roll(values, lag, axis=0) for lag in range(settings.lags + 1)], axis=2)
    zeros = np.zeros((TASKS, FEATURES))
    bins = bins_between(zeros, zeros + 1, BINS)
    model = learn(lagged[settings.lags :], labels[settings.lags :], 2)
    return TaskClassifier(model, bins, chains(bins.of(values), BINS, window), POLICIES[policy](), settings)


def run(one: TaskClassifier, values: Floats) -> list[Decisions]:
    return [one.step(row) for row in values]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_with_full_capacity_the_classifier_decides_like_the_model(policy: str) -> None:
    values, _ = history(2)
    found = run(classifier(policy, Settings(capacity=TASKS * FEATURES)), values)
    model = learn(*history(1), 2)
    assert np.array([one.classes for one in found]).tolist() == model.classify(values).tolist()
    risk = np.array([one.risks for one in found])
    assert risk == pytest.approx(1 - model.posterior(values).max(axis=-1), abs=1e-12)


def test_with_full_capacity_lags_are_the_values_of_earlier_units() -> None:
    values, _ = history(2)
    found = run(classifier("random", Settings(capacity=TASKS * FEATURES, lags=2)), values)
    trained, labels = history(1)
    lagged = [np.concatenate([v[2:], v[1:-1], v[:-2]], axis=2) for v in (trained, values)]
    model = learn(lagged[0], labels[2:], 2)
    assert np.array([one.classes for one in found[2:]]).tolist() == model.classify(lagged[1]).tolist()


def test_unobserved_features_are_predicted() -> None:
    one = classifier("random", Settings(capacity=0))
    values, _ = history(2, 3)
    p = one._chains.shares()
    for row in values:
        decisions = one.step(row)
        p = np.einsum("tfi,tfij->tfj", p, one._chains.matrices)
        assert one._p == pytest.approx(p)
        assert not decisions.observed.any()


def test_an_observation_is_a_unit_vector() -> None:
    one = classifier("random", Settings(capacity=TASKS * FEATURES))
    one.step(np.full((TASKS, FEATURES), 0.99))
    assert one._p[..., -1].tolist() == np.ones((TASKS, FEATURES)).tolist()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_restored_classifier_continues_like_the_original(policy: str) -> None:
    values, _ = history(2, 30)
    settings = Settings(capacity=3, lags=1, renew=5)
    through = run(classifier(policy, settings, window=10), values)
    first = classifier(policy, settings, window=10)
    parts = run(first, values[:11])
    parts += run(stored(first), values[11:])
    for a, b in zip(through, parts, strict=True):
        assert (a.classes.tolist(), a.risks.tolist()) == (b.classes.tolist(), b.risks.tolist())
        assert a.observed.tolist() == b.observed.tolist()


def test_every_stream_is_observed_in_two_consecutive_units_at_times() -> None:
    values, _ = history(2, 60)
    found = run(classifier("hvwt", Settings(capacity=2, renew=5), window=50), values)
    observed = np.array([one.observed for one in found])
    assert (observed[:-1] & observed[1:]).any(axis=0).all()
    assert (observed.sum(axis=(1, 2)) == 2).all()


def test_a_stream_without_values_is_not_observed() -> None:
    one = classifier("bff", Settings(capacity=6, renew=2), window=50)
    silent = np.full((TASKS, FEATURES), np.nan)
    silent[0, 1] = 0.5
    for _ in range(4):
        assert np.argwhere(one.step(silent).observed).tolist() == [[0, 1]]
