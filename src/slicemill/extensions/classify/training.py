"""Training of the classifiers of CREATE CLASSIFIER from the rows of a table.

A row is an example: the features and the true class of one object in one time unit. Rows are in order of
time. A classification task is one object to classify.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.extensions.classify.classifier import Settings, TaskClassifier
from slicemill.extensions.classify.model import bins_between, chains, learn
from slicemill.extensions.classify.policies import POLICIES
from slicemill.kernels.arrays import Floats

# Number of time units between round-robin observations, from which Markov chains learn transitions (M50).
_RENEW = 10


@dataclass(frozen=True, slots=True)
class TrainingExamples:
    """Examples of one object to classify: feature values (NaN if missing) and class numbers."""

    values: list[list[float]]
    labels: list[int]


class TrainingOptions(Protocol):
    """Options of CREATE CLASSIFIER that training uses."""

    @property
    def capacity(self) -> int: ...
    @property
    def policy(self) -> str: ...
    @property
    def bins(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def lags(self) -> int: ...
    @property
    def window(self) -> int | None: ...
    @property
    def seed(self) -> int: ...


def train(tasks: Sequence[TrainingExamples], classes: int, options: TrainingOptions) -> TaskClassifier:
    """Train the classifier of each object from the object's own examples.

    `tasks` has the examples of each object. `classes` is the number of classes.
    """
    longest = max(len(task.labels) for task in tasks)
    values = np.full((longest, len(tasks), len(tasks[0].values[0])), np.nan)
    labels = np.zeros((longest, len(tasks)), np.int64)
    for t, task in enumerate(tasks):
        values[: len(task.labels), t] = task.values
        labels[: len(task.labels), t] = task.labels
    known = ~np.isnan(values)
    if not known.any(axis=0).all():
        raise SlicemillError("there is nothing to learn from: some feature of a task has no value at all")
    moves = known.copy()
    moves[1:] &= known[:-1]
    bins = bins_between(np.nanmin(values, axis=0), np.nanmax(values, axis=0), options.bins)
    return TaskClassifier(
        learn(_add_lags(values, options.lags), labels, classes),
        bins,
        chains(bins.of(values), options.bins, options.window, moves),
        POLICIES[options.policy](),
        Settings(
            options.capacity,
            options.samples,
            options.lags,
            renew=None if options.window is None else _RENEW,
            seed=options.seed,
        ),
    )


def _add_lags(values: Floats, lags: int) -> Floats:
    """Append to each time unit the features of the `lags` previous time units.

    Features of time units before the first are NaN.
    """
    shifted = [np.full_like(values, np.nan) for _ in range(lags + 1)]
    for lag, copy in enumerate(shifted):
        copy[lag:] = values[: len(values) - lag]
    return np.concatenate(shifted, axis=2)
