"""Execution of CREATE CLASSIFIER: predict, observe, decide and learn in each time unit (M53).

There are n classification tasks (one per value of the PARTITION BY key), k features per task, C classes and h
random samples per stream. A stream is one feature of one task. A time unit is one interval of the clause
EVERY. Random numbers depend only on the seed and the number of the time unit. So a restarted query repeats
its decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slicemill.codec.registry import stored_as
from slicemill.extensions.classify.model import (
    Bins,
    MarkovChains,
    NaiveBayes,
    TimeUnit,
    decide_all,
    observe_stream,
    unobserved_arrays,
)
from slicemill.extensions.classify.policies import ObservationPolicy
from slicemill.kernels.arrays import Bools, Floats, Int64s
from slicemill.kernels.kernel import kernel

# Function from a mask of streams (n tasks, k features) to their observed values. Other values are NaN.
Observe: TypeAlias = Callable[[Bools], Floats]

# Number of time units after which the variances of the features' changes are computed again (M55).
_VARIANCE_PERIOD = 100


@stored_as("classify.settings", version=1)
@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a classifier.

    `capacity` is the number of streams observed per time unit. `samples` is the number of random samples per
    stream (M54). `lags` is the number of earlier time units whose values are features too (M57). Every
    `renew` time units, some streams are observed in two consecutive time units, whatever the policy chooses.
    Otherwise a Markov chain could not learn transitions of streams that the policy never chooses (M50).
    """

    capacity: int
    samples: int = 10
    lags: int = 0
    renew: int | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one time unit: class and expected risk of each classification task.

    `observed` is a mask of the streams that were observed, with one row per task and one column per feature.
    """

    classes: Int64s
    risks: Floats
    observed: Bools


@stored_as(
    "classify.classifier",
    version=1,
    fields=(
        "_model",
        "_bins",
        "_chains",
        "_policy",
        "_settings",
        "_centres",
        "_unit",
        "_p",
        "_last",
        "_last_seen",
        "_variance",
        "_past",
    ),
)
class TaskClassifier:
    """Classifier state for all classification tasks of one CREATE CLASSIFIER.

    The features of `model` are the values of the current time unit, then those of the previous time unit, and
    so on. `last` has the values of the time unit before the first (tasks × features), NaN if unknown.
    """

    def __init__(
        self,
        model: NaiveBayes,
        bins: Bins,
        chains: MarkovChains,
        policy: ObservationPolicy,
        settings: Settings,
        last: Floats | None = None,
    ) -> None:
        self._model = model
        self._bins = bins
        self._chains = chains
        self._policy = policy
        self._settings = settings
        self._centres = bins.centres()
        self._unit = 0
        self._p = chains.shares()
        self._last: Int64s = np.zeros(bins.low.shape, np.int64)
        self._last_seen = np.zeros(bins.low.shape, np.bool_)
        if last is not None:
            self._update_distributions(last, ~np.isnan(last))
        self._variance = chains.movement_variance()
        # Samples of earlier time units, latest first. The samples of an observed stream are its true value.
        self._past: list[Floats] = []

    def step(self, values: Floats, observe: Observe | None = None, share: float = 1.0) -> Decisions:
        """Choose the streams to observe in one time unit, and classify all tasks.

        `values` are the values of the streams (tasks × features), NaN for none. With `observe`, `values` only
        shows which streams have a value. The policy then uses expected values, and `observe` returns the true
        values of the chosen streams. `share` is the fraction of the capacity that is available under load. At
        least one stream is observed.
        """
        settings, (tasks, features) = self._settings, values.shape
        capacity = min(settings.capacity, max(1, int(share * settings.capacity)))
        random = np.random.default_rng((settings.seed, self._unit))
        self._p = self._chains.predict(self._p)
        drawn = _draw(self._p, random.random((tasks, features, settings.samples)), self._centres)
        sampled = self._densities(drawn, 0)
        expectation = (self._p * self._centres).sum(axis=-1)
        expected = self._densities(expectation[..., np.newaxis], 0)[..., 0]
        base, likely = self._base(drawn), np.ascontiguousarray(expected)
        supposed = values if observe is None else np.where(np.isnan(values), np.nan, expectation)
        policy_samples = sampled if observe is None else sampled.copy()
        view = unobserved_arrays(self._model, base, policy_samples, likely, supposed)
        if self._unit % _VARIANCE_PERIOD == 0 and self._chains.window is not None:
            self._variance = self._chains.movement_variance()
        unit = TimeUnit(view, capacity, self._variance, random)
        for task, feature in self._scheduled_streams(tasks * features, features, capacity):
            if view.present[task, feature]:
                observe_stream(view, task, feature)
        self._policy.choose(unit)
        if observe is not None:
            values = observe(view.observed)
            view = unobserved_arrays(self._model, base, sampled, likely, values)
            for task, feature in np.argwhere(view.present).tolist():
                observe_stream(view, task, feature)
        classes, risks, _ = decide_all(view)
        self._learn(values, view.observed)
        if settings.lags:
            known = np.where(view.observed[..., np.newaxis], values[..., np.newaxis], drawn)
            self._past = [known, *self._past][: settings.lags]
        self._unit += 1
        return Decisions(classes, risks, view.observed)

    def _base(self, drawn: Floats) -> Floats:
        """Return the log of the class priors times the densities of values in earlier time units.

        The shape is tasks × classes × samples.
        """
        base = np.repeat(self._model.log_prior[..., np.newaxis], self._settings.samples, axis=-1)
        for lag in range(1, self._settings.lags + 1):
            # The first time units have no past samples, so the current samples are used.
            past = self._past[lag - 1] if lag <= len(self._past) else drawn
            base = base + self._densities(past, lag).sum(axis=1)
        return base

    def _densities(self, values: Floats, lag: int) -> Floats:
        """Return the log density of feature values under each class, for values `lag` time units old.

        `values` is tasks × features × samples. The result is tasks × features × classes × samples.
        """
        return _densities(values, self._model.mean, self._model.deviation, lag * values.shape[1])

    def _scheduled_streams(self, streams: int, features: int, capacity: int) -> list[tuple[int, int]]:
        """Return the streams (task, feature) that round-robin observation selects in this time unit.

        The same streams are selected in two consecutive time units, so that transitions can be learnt.
        """
        renew = self._settings.renew
        if renew is None or self._unit % renew > 1:
            return []
        count = min(max(1, self._settings.capacity // 2), streams)
        first = self._unit // renew * count
        # Under load, only the first of these streams are observed.
        return [divmod((first + i) % streams, features) for i in range(min(count, capacity))]

    def _learn(self, values: Floats, observed: Bools) -> None:
        if self._chains.window is not None:
            self._chains.learn(self._last, self._bins.of(values), observed & self._last_seen)
        self._update_distributions(values, observed)

    def _update_distributions(self, values: Floats, observed: Bools) -> None:
        bins = self._bins.of(values)
        self._p[observed] = np.eye(self._bins.count)[bins[observed]]
        self._last, self._last_seen = bins, observed


@kernel
def _densities(values: Floats, mean: Floats, deviation: Floats, first: int) -> Floats:
    tasks, features, samples = values.shape
    classes = mean.shape[2]
    densities = np.empty((tasks, features, classes, samples))
    for t in range(tasks):
        for f in range(features):
            for c in range(classes):
                middle, spread = mean[t, first + f, c], deviation[t, first + f, c]
                constant = np.log(spread)
                for s in range(samples):
                    away = (values[t, f, s] - middle) / spread
                    densities[t, f, c, s] = -0.5 * away * away - constant
    return densities


@kernel
def _draw(p: Floats, uniform: Floats, centres: Floats) -> Floats:
    """Draw bin centres from each stream's distribution over bins, by inversion sampling."""
    drawn = np.empty_like(uniform)
    bins = p.shape[2]
    for t in range(uniform.shape[0]):
        for f in range(uniform.shape[1]):
            for s in range(uniform.shape[2]):
                below, index = p[t, f, 0], 0
                while below <= uniform[t, f, s] and index < bins - 1:
                    index += 1
                    below += p[t, f, index]
                # Rounding errors may select the last bin. A bin of probability 0 must not be drawn.
                while p[t, f, index] == 0.0 and index > 0:
                    index -= 1
                drawn[t, f, s] = centres[t, f, index]
    return drawn
