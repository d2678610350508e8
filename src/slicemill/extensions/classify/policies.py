"""Observation policies of CREATE CLASSIFIER: the choice of streams to observe in a time unit.

A stream is one feature of one classification task (an object to classify). Its gain is the amount by which
its observation is expected to reduce a risk. The Bayes risk is the expected loss of a decision. The
observational risk is the part of the Bayes risk that knowing all features would avoid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from slicemill.codec.registry import stored_as
from slicemill.extensions.classify.model import (
    TimeUnit,
    TimeUnitArrays,
    decide,
    decide_all,
    decide_knowing,
    observe_stream,
)
from slicemill.kernels.arrays import Bools, Floats, Int64s
from slicemill.kernels.kernel import kernel


class ObservationPolicy(Protocol):
    """Policy that observes streams of a time unit, as many as the capacity allows."""

    def choose(self, unit: TimeUnit) -> None: ...


# Random choice of streams (M56)


@stored_as("classify.uniform", version=1, fields=())
class Uniform:
    def choose(self, unit: TimeUnit) -> None:
        left = np.flatnonzero(unit.view.present & ~unit.view.observed)
        _observe_streams(unit.view, unit.random.permutation(left)[: unit.remaining])


@kernel
def _observe_streams(view: TimeUnitArrays, streams: Int64s) -> None:
    for stream in streams:
        observe_stream(view, *divmod(stream, view.values.shape[1]))


# Best feature first (BFF): observe the stream of greatest gain (M53)
#
# The value of a stream is unknown before its observation, so its expected value is used. The gain is the
# decrease of the observational risk (policy `bff`, formulas 5.12 and 5.13 of the publication) or of the Bayes
# risk (policy `q_bayes`, formula 5.8). With the Bayes risk, the policy may prefer a stream merely because its
# expected value has a low risk. An observation changes only the risk of the stream's own task.


@stored_as("classify.greedy", version=1, fields=("_observational", "_pruning"))
class BestFeatureFirst:
    """Greedy policy: repeatedly observe the stream that is expected to reduce the risk most.

    With `observational`, the reduced risk is the observational risk (policy `bff`), otherwise the Bayes risk
    (policy `q_bayes`). With `pruning`, the reduction is computed for fewer streams.
    """

    def __init__(self, observational: bool, pruning: Pruning | None = None) -> None:
        self._observational = observational
        self._pruning = pruning

    def choose(self, unit: TimeUnit) -> None:
        view = unit.view
        candidates = view.present.copy()
        if self._pruning is not None:
            candidates = self._pruning.candidates(decide_all(view)[2], view.present)
        quality = np.zeros(view.present.shape)
        _first_qualities(view, candidates, self._observational, quality)
        if self._pruning is not None:
            self._pruning.record(quality, candidates)
        order = unit.random_task_order(), unit.random_feature_order()
        _best_first(view, unit.remaining, self._observational, quality, *order)
        # Once no observation reduces the risk further, the remaining capacity is used at random.
        Uniform().choose(unit)


def qualities(view: TimeUnitArrays, observational: bool) -> Floats:
    """Return each stream's gain: the risk that its observation is expected to avoid.

    With `observational`, the risk is the observational risk, otherwise the Bayes risk. The result has the
    shape tasks × features.
    """
    gain = np.zeros(view.present.shape)
    _first_qualities(view, np.ones_like(view.present), observational, gain)
    return gain


@kernel
def _first_qualities(view: TimeUnitArrays, candidates: Bools, observational: bool, quality: Floats) -> None:
    for t in range(candidates.shape[0]):
        _qualities_of(view, t, candidates[t], observational, quality[t])


@kernel
def _qualities_of(view: TimeUnitArrays, t: int, wanted: Bools, observational: bool, quality: Floats) -> None:
    _, risk, unknown = decide(view.joint[t], view.loss)
    for f in range(len(wanted)):
        quality[f] = 0.0
        if wanted[f] and not view.observed[t, f]:
            _, risk_after, unknown_after = decide_knowing(
                view.joint[t], view.sampled[t, f], view.expected[t, f], view.loss
            )
            quality[f] = unknown - unknown_after if observational else risk - risk_after


@kernel
def _best_first(
    view: TimeUnitArrays, capacity: int, observational: bool, quality: Floats, tasks: Int64s, features: Int64s
) -> None:
    for _ in range(capacity):
        best, best_t, best_f = 0.0, -1, -1
        for t in tasks:
            for f in features[t]:
                if quality[t, f] > best:
                    best, best_t, best_f = quality[t, f], t, f
        if best_t < 0:
            return
        observe_stream(view, best_t, best_f)
        _qualities_of(view, best_t, view.present[best_t], observational, quality[best_t])


# Highest variance of worst task (HVWT): cheaper than best feature first and nearly as good (M55)
#
# The worst task is the classification task of highest observational risk. Its stream of highest variance is
# observed, because this stream has most probably crossed the border between two classes. Only one risk is
# computed per observed stream.


@stored_as("classify.hvwt", version=1, fields=())
class Hvwt:
    def choose(self, unit: TimeUnit) -> None:
        risks = decide_all(unit.view)[2]
        order = unit.random_task_order(), unit.random_feature_order()
        _worst_first(unit.view, unit.remaining, risks, unit.variance, *order)


@kernel
def _worst_first(
    view: TimeUnitArrays, capacity: int, risks: Floats, variance: Floats, tasks: Int64s, features: Int64s
) -> None:
    for _ in range(capacity):
        worst, widest = -1, -1
        for t in tasks:
            if worst >= 0 and risks[t] <= risks[worst]:
                continue
            index = -1
            for f in features[t]:
                left = view.present[t, f] and not view.observed[t, f]
                if left and (index < 0 or variance[t, f] > variance[t, index]):
                    index = f
            if index >= 0:
                worst, widest = t, index
        observe_stream(view, worst, widest)
        risks[worst] = decide(view.joint[worst], view.loss)[2]


# LoadStar: observe all streams of a task, in order of the tasks' expected gains (M56)
#
# The gain of a task is the decrease of its Bayes risk if all its streams had their expected values. The
# publication does not specify the ranking (X9). The last task may be observed partly.


@stored_as("classify.loadstar", version=1, fields=())
class LoadStar:
    def choose(self, unit: TimeUnit) -> None:
        tasks = unit.random_task_order()
        gain = gains(unit.view)
        ranked = tasks[np.argsort(-gain[tasks], kind="stable")]
        _whole_tasks(unit.view, unit.remaining, ranked, unit.random_feature_order())


@kernel
def gains(view: TimeUnitArrays) -> Floats:
    """Return each task's gain: the Bayes risk that observing all its streams is expected to avoid."""
    tasks, features = view.present.shape
    gain = np.empty(tasks)
    for t in range(tasks):
        after = view.base[t].copy()
        for f in range(features):
            if view.observed[t, f]:
                after += view.sampled[t, f]
            else:
                after += view.expected[t, f].reshape(-1, 1)
        gain[t] = decide(view.joint[t], view.loss)[1] - decide(after, view.loss)[1]
    return gain


@kernel
def _whole_tasks(view: TimeUnitArrays, capacity: int, ranked: Int64s, features: Int64s) -> None:
    for t in ranked:
        for f in features[t]:
            if capacity == 0:
                return
            if view.present[t, f] and not view.observed[t, f]:
                observe_stream(view, t, f)
                capacity -= 1


# Pruning for best feature first: skip streams that are unlikely to be chosen (M54)
#
# The threshold is the 20th percentile of the positive gains in the previous window of time units. Two kinds
# of streams are skipped: all streams of a task whose observational risk is below the threshold, and streams
# whose gain was below the threshold throughout the window while the risk of their task is nearly unchanged.
# Pruning reduces the average cost of a time unit, but not the highest cost.


_PERCENTILE = 20
_SAME = 0.1


@stored_as(
    "classify.pruning",
    version=1,
    fields=("_window", "_threshold", "_seen", "_best", "_risks", "_low", "_usual"),
)
class Pruning:
    """Selection of the streams whose gain is computed, by the gains of recent time units.

    The gain of a stream is the risk that its observation is expected to avoid. `window` is the number of
    recent time units.
    """

    def __init__(self, window: int = 20) -> None:
        self._window = window
        self._threshold = 0.0
        self._seen: list[Floats] = []
        self._best: Floats | None = None  # greatest gain of each stream in the current window
        self._risks: list[Floats] = []
        # `_low` marks streams whose gain was below the threshold throughout the previous window, and `_usual`
        # has the mean observational risk of each task in the previous window.
        self._low: Bools | None = None
        self._usual: Floats | None = None

    def candidates(self, observational_risk: Floats, present: Bools) -> Bools:
        """Return a mask of the streams whose gain must be computed in this time unit.

        `observational_risk` has, for each task, the expected loss that knowing all features would avoid.
        """
        self._risks.append(observational_risk)
        selected = present & (observational_risk >= self._threshold)[:, np.newaxis]
        if self._low is not None and self._usual is not None:
            same = np.abs(observational_risk - self._usual) <= _SAME * self._usual
            selected &= ~(self._low & same[:, np.newaxis])
        return np.asarray(selected)

    def record(self, quality: Floats, weighed: Bools) -> None:
        """Record the gains that were computed in a time unit, for the streams in the mask `weighed`."""
        known = np.where(weighed, quality, -np.inf)
        self._best = known if self._best is None else np.maximum(self._best, known)
        self._seen.append(quality[weighed & (quality > 0)])
        if len(self._seen) == self._window:
            self._next_window()

    def _next_window(self) -> None:
        seen = np.concatenate(self._seen)
        if len(seen):
            self._threshold = float(np.percentile(seen, _PERCENTILE))
        assert self._best is not None
        # A stream whose gain was not computed in this window keeps its entry in `_low`.
        never = np.isneginf(self._best)
        before = np.zeros_like(never) if self._low is None else self._low
        self._low = np.where(never, before, self._best < self._threshold)
        self._usual = np.mean(self._risks, axis=0)
        self._seen, self._risks, self._best = [], [], None


# Policies by the names that CREATE CLASSIFIER … WITH (policy = …) accepts


POLICIES: Mapping[str, Callable[[], ObservationPolicy]] = {
    "bff": lambda: BestFeatureFirst(observational=True),
    "bff_pruned": lambda: BestFeatureFirst(observational=True, pruning=Pruning()),
    "hvwt": Hvwt,
    "loadstar": LoadStar,
    "q_bayes": lambda: BestFeatureFirst(observational=False),
    "random": Uniform,
}
