"""One time unit as a policy sees it: what is predicted of every stream, and a way to look at one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Bools, Floats, Ints
from slicemill.shedding.classify.model import NaiveBayes
from slicemill.shedding.classify.risk import decide


class TimeUnitArrays(NamedTuple):
    """The arrays of a time unit, for compiled code.

    `sampled` (n, k, C, h) are the log densities of the samples of each stream, `expected` (n, k, C) those of
    its expected value. `joint` (n, C, h) is the sum of the samples over the streams and of `base`, all that
    counts beside them. `values` (n, k) are read by looking only: `look` puts a stream's true value in place
    of its samples.
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
    """What a policy gets. `variance` (n, k) is how far each stream moves in a time unit."""

    view: TimeUnitArrays
    capacity: int
    variance: Floats
    random: np.random.Generator

    @property
    def remaining(self) -> int:
        """How many streams may still be looked at."""
        left = np.count_nonzero(self.view.present & ~self.view.observed)
        return int(min(self.capacity - np.count_nonzero(self.view.observed), left))

    def shuffled_tasks(self) -> Ints:
        """All tasks in an order at random: whoever takes the first best takes ties at random."""
        return self.random.permutation(self.view.values.shape[0])

    def shuffled_features(self) -> Ints:
        """The features of each task, in an order at random: (n, k)."""
        tasks, features = self.view.values.shape
        return np.argsort(self.random.random((tasks, features)), axis=1)


def view_of(
    model: NaiveBayes, base: Floats, sampled: Floats, expected: Floats, values: Floats
) -> TimeUnitArrays:
    """A unit in which nothing is looked at yet; a stream that brought no value (NaN) cannot be."""
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
def look(view: TimeUnitArrays, t: int, f: int) -> None:
    """Look at a stream: all its samples become its true value."""
    classes, samples = view.joint.shape[1:]
    for c in range(classes):
        away = (view.values[t, f] - view.mean[t, f, c]) / view.deviation[t, f, c]
        density = -0.5 * away * away - np.log(view.deviation[t, f, c])
        for s in range(samples):
            view.sampled[t, f, c, s] = density
    view.observed[t, f] = True
    # Summed anew rather than corrected: where all is known, all samples must be equal to the last bit.
    view.joint[t] = view.base[t]
    for g in range(view.sampled.shape[1]):
        view.joint[t] += view.sampled[t, g]


@kernel
def decide_all(view: TimeUnitArrays) -> tuple[Ints, Floats, Floats]:
    """Of every task: the class to say, its expected risk, and its observational risk."""
    tasks = view.joint.shape[0]
    classes, risks, observational = np.empty(tasks, np.int64), np.empty(tasks), np.empty(tasks)
    for t in range(tasks):
        classes[t], risks[t], observational[t] = decide(view.joint[t], view.loss)
    return classes, risks, observational
