"""Naive Bayes classifier and Markov chains of CREATE CLASSIFIER (M50-M52, M56).

The classifier has a normal distribution per classification task, feature and class. A classification task is
one object to classify. A Markov chain per feature predicts values that are not observed. Array shapes use
these letters: n tasks, k features per task, C classes, M bins per feature, h random samples per stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from slicemill.codec.registry import stored_as
from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Bools, Floats, Int64s
from slicemill.kernels.kernel import kernel

# Minimum deviation. With deviation 0, every other value of a feature would have probability 0.
_LEAST_DEVIATION = 1e-3


@stored_as("classify.model", version=1)
@dataclass(frozen=True, slots=True)
class NaiveBayes:
    """Parameters of naive Bayes classifiers: one per classification task.

    With n tasks, k features and C classes, `log_prior` is (n, C), `mean` and `deviation` are (n, k, C).
    `loss[i, j]` is the loss if class i is decided and class j is true.
    """

    log_prior: Floats
    mean: Floats
    deviation: Floats
    loss: Floats

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of tasks, features per task, and classes."""
        tasks, features, classes = self.mean.shape
        return tasks, features, classes

    def log_density(self, values: Floats) -> Floats:
        """Return the log density of feature values under each class, up to a constant.

        The result has the shape of `values` (…, tasks, features) and a last axis for classes.
        """
        away = (values[..., np.newaxis] - self.mean) / self.deviation
        return np.asarray(-0.5 * away**2 - np.log(self.deviation))

    def posterior(self, values: Floats) -> Floats:
        """Return the probability of each class, given complete feature vectors.

        `values` is (…, tasks, features). The result is (…, tasks, classes).
        """
        joint = self.log_prior + self.log_density(values).sum(axis=-2)
        weights = np.exp(joint - joint.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def classify(self, values: Floats) -> Int64s:
        """Return the class of least risk for complete feature vectors."""
        return np.asarray((self.posterior(values) @ self.loss.T).argmin(axis=-1))


def zero_one(classes: int) -> Floats:
    """Return the zero-one loss matrix: 0 for the true class, 1 for every other class."""
    return 1.0 - np.eye(classes)


def learn(values: Floats, labels: Int64s, classes: int, loss: Floats | None = None) -> NaiveBayes:
    """Fit naive Bayes classifiers to training examples.

    `values` has the shape time × tasks × features, `labels` has the true classes (time × tasks). Examples
    with NaN are skipped. Each class is counted once more than it occurs, so that no class has probability 0.
    """
    _, tasks, features = values.shape
    log_prior = np.empty((tasks, classes))
    mean = np.empty((tasks, features, classes))
    deviation = np.empty((tasks, features, classes))
    for t in range(tasks):
        whole = ~np.isnan(values[:, t]).any(axis=-1)
        if not whole.any():
            raise SlicemillError("there is nothing to learn from: no row has a value for every feature")
        x, label = values[whole, t], labels[whole, t]
        spread = np.maximum(x.std(axis=0), _LEAST_DEVIATION)
        for c in range(classes):
            of_class = x[label == c]
            log_prior[t, c] = np.log((len(of_class) + 1) / (len(x) + classes))
            # A class with fewer than two examples uses the spread of all classes.
            mean[t, :, c] = of_class.mean(axis=0) if len(of_class) else x.mean(axis=0)
            class_spread = of_class.std(axis=0) if len(of_class) > 1 else spread
            deviation[t, :, c] = np.maximum(class_spread, _LEAST_DEVIATION * spread)
    return NaiveBayes(log_prior, mean, deviation, zero_one(classes) if loss is None else loss)


# Bins: the states of the Markov chains (M50)


@stored_as("classify.bins", version=1)
@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width for the values of each feature.

    `low` is the start of the first bin. `low` and `width` have the shape tasks × features. Values outside of
    all bins belong to the first or last bin.

    >>> bins = Bins(np.array([[0.0]]), np.array([[0.5]]), 2)
    >>> bins.of(np.array([[0.6]])).tolist(), bins.centres().tolist()
    ([[1]], [[[0.25, 0.75]]])
    """

    low: Floats
    width: Floats
    count: int

    def of(self, values: Floats) -> Int64s:
        """Return the bin index of each feature value. NaN gets the first bin."""
        indices = np.floor((values - self.low) / self.width)
        return np.where(indices > 0, np.minimum(indices, self.count - 1), 0).astype(np.int64)

    def centres(self) -> Floats:
        """Return the centre of each bin (tasks × features × bins)."""
        steps = np.arange(self.count) + 0.5
        return np.asarray(self.low[..., np.newaxis] + self.width[..., np.newaxis] * steps, np.float64)


def bins_between(low: Floats, high: Floats, count: int) -> Bins:
    """Return bins between the least and greatest value of each feature.

    A constant feature has bins of width 1 / `count`.
    """
    return Bins(low, np.where(high > low, high - low, 1.0) / count, count)


# Markov chains over bins, learnt by counting transitions (M50)
#
# The transition probability from bin i to bin j is count[i, j] / Σ_l count[i, l]. With a `window`, only the
# latest `window` transitions of each feature count. A ring buffer stores these transitions, so that the
# oldest can be subtracted. A bin without counted transitions gets the probability 1 of staying there.


@stored_as("classify.chains", version=1)
@dataclass(slots=True)
class MarkovChains:
    """Markov chains over the bins of feature values, one chain per task and feature.

    `counts[task, feature, i, j]` is the number of counted transitions from bin i to bin j.
    """

    counts: Int64s
    window: int | None = None
    _ring: Int64s | None = None
    _added: Int64s | None = None
    _matrices: Floats = field(init=False)

    def __post_init__(self) -> None:
        tasks, features, bins, _ = self.counts.shape
        if self.window is not None:
            self._ring = np.full((tasks, features, self.window), -1, np.int64)
            self._added = np.zeros((tasks, features), np.int64)
        self._matrices = np.empty((tasks, features, bins, bins))
        _renew(self.counts, np.ones((tasks, features), np.bool_), self._matrices)

    @property
    def matrices(self) -> Floats:
        """Return the transition probabilities between bins (tasks × features × bins × bins)."""
        return self._matrices

    def learn(self, before: Int64s, after: Int64s, seen: Bools) -> None:
        """Count the transitions of one time unit, and update the transition probabilities.

        `before` and `after` are bin indexes (tasks × features). Transitions count where `seen` is True.
        """
        _count(self.counts, before, after, seen, self._ring, self._added)
        _renew(self.counts, seen, self._matrices)

    def predict(self, p: Floats) -> Floats:
        """Return the distributions over bins one time unit after the distributions `p`.

        Both have the shape tasks × features × bins.
        """
        return _predict(p, self._matrices)

    def shares(self) -> Floats:
        """Return the relative frequency of each bin (tasks × features × bins).

        The frequencies predict a feature that has not been observed yet.
        """
        visits = self.counts.sum(axis=-1)
        total = visits.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(total > 0, visits / np.maximum(total, 1), 1.0 / visits.shape[-1]))

    def movement_variance(self) -> Floats:
        """Return the variance of each feature's change per time unit, from the counted transitions (M55).

        Changes are measured in bins, so that features in metres and in kilometres are comparable.
        """
        numbers = np.arange(self.counts.shape[-1])
        moves = numbers[np.newaxis, :] - numbers[:, np.newaxis]
        total = np.maximum(self.counts.sum(axis=(-2, -1)), 1)
        mean = (self.counts * moves).sum(axis=(-2, -1)) / total
        square = (self.counts * moves**2).sum(axis=(-2, -1)) / total
        return np.asarray(np.maximum(square - mean**2, 0.0))


def chains(bins: Int64s, count: int, window: int | None = None, moves: Bools | None = None) -> MarkovChains:
    """Learn Markov chains from histories of bin indexes (time × tasks × features).

    `count` is the number of bins. `moves` has the shape of `bins`, and is True where the transition from the
    previous time unit counts. With None, all transitions count.

    >>> K = chains(np.array([0, 0, 1, 0, 1]).reshape(-1, 1, 1), 2).matrices[0, 0]
    >>> K.round(3).tolist()
    [[0.333, 0.667], [1.0, 0.0]]
    """
    _, tasks, features = bins.shape
    learnt = MarkovChains(np.zeros((tasks, features, count, count), np.int64), window)
    for at in range(1, len(bins)):
        seen = np.ones((tasks, features), np.bool_) if moves is None else moves[at]
        _count(learnt.counts, bins[at - 1], bins[at], seen, learnt._ring, learnt._added)
    _renew(learnt.counts, np.ones((tasks, features), np.bool_), learnt._matrices)
    return learnt


@kernel
def _count(
    counts: Int64s, before: Int64s, after: Int64s, seen: Bools, ring: Int64s | None, added: Int64s | None
) -> None:
    bins = counts.shape[2]
    for t in range(seen.shape[0]):
        for f in range(seen.shape[1]):
            if not seen[t, f]:
                continue
            counts[t, f, before[t, f], after[t, f]] += 1
            if ring is not None and added is not None:
                index = added[t, f] % ring.shape[2]
                oldest = ring[t, f, index]
                if oldest >= 0:
                    counts[t, f, oldest // bins, oldest % bins] -= 1
                ring[t, f, index] = before[t, f] * bins + after[t, f]
                added[t, f] += 1


@kernel
def _renew(counts: Int64s, changed: Bools, matrices: Floats) -> None:
    bins = counts.shape[2]
    for t in range(changed.shape[0]):
        for f in range(changed.shape[1]):
            if not changed[t, f]:
                continue
            for i in range(bins):
                total = counts[t, f, i].sum()
                for j in range(bins):
                    if total > 0:
                        matrices[t, f, i, j] = counts[t, f, i, j] / total
                    else:
                        matrices[t, f, i, j] = 1.0 if i == j else 0.0


@kernel
def _predict(p: Floats, matrices: Floats) -> Floats:
    after = np.zeros_like(p)
    for t in range(p.shape[0]):
        for f in range(p.shape[1]):
            for i in range(p.shape[2]):
                mass = p[t, f, i]
                if mass > 0.0:
                    for j in range(p.shape[2]):
                        after[t, f, j] += mass * matrices[t, f, i, j]
    return after


# Bayes risk and observational risk of one classification task (M51, M52, M54)
#
# The Bayes risk is the expected loss of the best class. If all features were known, the best class could be
# chosen for each sample, and the expected loss would be lower. The difference is the observational risk: the
# part of the Bayes risk that more observations can avoid. Expectations are means over random samples of the
# features. `joint[c, s]` is the log of the prior of class c times the density of sample s.


@kernel
def decide(joint: Floats, loss: Floats) -> tuple[int, float, float]:
    """Return the class of least expected loss, its expected loss, and the observational risk.

    The observational risk is the part of the expected loss that knowing all features would avoid. `joint` has
    the log of prior times density, for each class and sample.
    """
    classes, samples = joint.shape
    risks = np.zeros(classes)
    optimal = 0.0
    weights = np.empty(classes)
    for s in range(samples):
        top = joint[0, s]
        for c in range(1, classes):
            top = max(top, joint[c, s])
        total = 0.0
        for c in range(classes):
            weights[c] = np.exp(joint[c, s] - top)
            total += weights[c]
        least = np.inf
        for i in range(classes):
            risk = 0.0
            for j in range(classes):
                risk += loss[i, j] * weights[j]
            risk /= total
            risks[i] += risk
            least = min(least, risk)
        optimal += least
    best = 0
    for i in range(1, classes):
        if risks[i] < risks[best]:
            best = i
    # Both sums have the same order, so the difference is exactly 0 if one class is best for all samples.
    return best, risks[best] / samples, max(risks[best] - optimal, 0.0) / samples


@kernel
def decide_knowing(joint: Floats, sampled: Floats, known: Floats, loss: Floats) -> tuple[int, float, float]:
    """Decide like `decide`, but assume that one feature has been observed.

    Its log densities `known` (per class) replace the log densities `sampled` of its samples (per class and
    sample).
    """
    classes, samples = joint.shape
    after = np.empty((classes, samples))
    for c in range(classes):
        for s in range(samples):
            after[c, s] = joint[c, s] - sampled[c, s] + known[c]
    return decide(after, loss)


# Input of an observation policy


class TimeUnitArrays(NamedTuple):
    """Arrays of one time unit, passed to compiled observation policies.

    Shapes use n tasks, k features, C classes and h samples. `sampled` (n, k, C, h) has the log densities of
    each stream's random samples, `expected` (n, k, C) those of its expected value. `base` has the log priors
    plus the log densities of earlier time units. `joint` (n, C, h) is `base` plus the sum of `sampled` over
    the features. A policy must not read `values` (n, k) directly. `observe_stream` replaces the samples of a
    stream by its true value.
    """

    base: Floats
    joint: Floats
    sampled: Floats
    expected: Floats
    loss: Floats
    values: Floats
    mean: Floats
    deviation: Floats
    present: Bools
    observed: Bools


@dataclass(slots=True)
class TimeUnit:
    """Input of an observation policy: arrays of the time unit, capacity and random numbers.

    `variance` is the variance of each stream's change per time unit (tasks × features).
    """

    view: TimeUnitArrays
    capacity: int
    variance: Floats
    random: np.random.Generator

    @property
    def remaining(self) -> int:
        """Return the number of streams that may still be observed."""
        left = np.count_nonzero(self.view.present & ~self.view.observed)
        return int(min(self.capacity - np.count_nonzero(self.view.observed), left))

    def random_task_order(self) -> Int64s:
        """Return the indexes of all classification tasks in random order, which breaks ties."""
        return self.random.permutation(self.view.values.shape[0])

    def random_feature_order(self) -> Int64s:
        """Return the feature indexes of each classification task in random order."""
        tasks, features = self.view.values.shape
        return np.argsort(self.random.random((tasks, features)), axis=1)


def unobserved_arrays(
    model: NaiveBayes, base: Floats, sampled: Floats, expected: Floats, values: Floats
) -> TimeUnitArrays:
    """Return the arrays of a time unit in which no stream has been observed yet.

    A stream without a value (NaN) cannot be observed.
    """
    joint = base + sampled.sum(axis=1)
    k = values.shape[1]
    mean = np.ascontiguousarray(model.mean[:, :k])
    deviation = np.ascontiguousarray(model.deviation[:, :k])
    present = ~np.isnan(values)
    observed = np.zeros_like(present)
    return TimeUnitArrays(
        base, joint, sampled, expected, model.loss, values, mean, deviation, present, observed
    )


@kernel
def observe_stream(view: TimeUnitArrays, t: int, f: int) -> None:
    """Mark feature `f` of task `t` as observed: its true value replaces all its samples."""
    classes, samples = view.joint.shape[1:]
    for c in range(classes):
        away = (view.values[t, f] - view.mean[t, f, c]) / view.deviation[t, f, c]
        density = -0.5 * away * away - np.log(view.deviation[t, f, c])
        for s in range(samples):
            view.sampled[t, f, c, s] = density
    view.observed[t, f] = True
    # The sum is recomputed, not corrected, so that a fully observed task has bitwise equal samples.
    view.joint[t] = view.base[t]
    for g in range(view.sampled.shape[1]):
        view.joint[t] += view.sampled[t, g]


@kernel
def decide_all(view: TimeUnitArrays) -> tuple[Int64s, Floats, Floats]:
    """Return the decided class, expected loss and observational risk of each classification task.

    The observational risk is the part of the expected loss that knowing all features would avoid.
    """
    tasks = view.joint.shape[0]
    classes, risks, observational = np.empty(tasks, np.int64), np.empty(tasks), np.empty(tasks)
    for t in range(tasks):
        classes[t], risks[t], observational[t] = decide(view.joint[t], view.loss)
    return classes, risks, observational
