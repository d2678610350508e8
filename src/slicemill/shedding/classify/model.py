"""The classifier of each task: naive Bayes with a normal distribution per feature and class (M51, M56)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.shedding.classify.arrays import Floats, Ints
from slicemill.storage.codec import stored_as

# A feature that never varies within a class would make every other value impossible.
_LEAST_DEVIATION = 1e-3


@stored_as("classify.model", version=1)
@dataclass(frozen=True, slots=True)
class NaiveBayes:
    """`log_prior` is (n, C), `mean` and `deviation` are (n, k, C).

    `loss[i, j]` is what it costs to say class i where j is true. The shedder uses the classifier's own.
    """

    log_prior: Floats
    mean: Floats
    deviation: Floats
    loss: Floats

    @property
    def shape(self) -> tuple[int, int, int]:
        """Tasks, features of each, classes."""
        tasks, features, classes = self.mean.shape
        return tasks, features, classes

    def log_density(self, values: Floats) -> Floats:
        """Of values (…, n, k), in each class: (…, n, k, C), without what is common to all."""
        away = (values[..., np.newaxis] - self.mean) / self.deviation
        return np.asarray(-0.5 * away**2 - np.log(self.deviation))

    def posterior(self, values: Floats) -> Floats:
        """P(c | x) of whole feature vectors (…, n, k): (…, n, C)."""
        joint = self.log_prior + self.log_density(values).sum(axis=-2)
        weights = np.exp(joint - joint.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def classify(self, values: Floats) -> Ints:
        """The class of least risk for whole feature vectors."""
        return np.asarray((self.posterior(values) @ self.loss.T).argmin(axis=-1))


def zero_one(classes: int) -> Floats:
    """The loss that counts mistakes."""
    return 1.0 - np.eye(classes)


def learn(values: Floats, labels: Ints, classes: int, loss: Floats | None = None) -> NaiveBayes:
    """A model of histories: values (time, n, k), the true class (time, n); rows with a NaN are left out.

    Priors are counted with one more of each class, so that none is ruled out by a short history.
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
            mine = x[label == c]
            log_prior[t, c] = np.log((len(mine) + 1) / (len(x) + classes))
            # A class that was seen less than twice has no spread of its own.
            mean[t, :, c] = mine.mean(axis=0) if len(mine) else x.mean(axis=0)
            own = mine.std(axis=0) if len(mine) > 1 else spread
            deviation[t, :, c] = np.maximum(own, _LEAST_DEVIATION * spread)
    return NaiveBayes(log_prior, mean, deviation, zero_one(classes) if loss is None else loss)
