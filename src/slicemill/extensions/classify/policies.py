"""Observation policies: the choice of streams to observe in a time unit."""

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
    """Observes streams of a time unit while capacity and streams remain."""

    def choose(self, unit: TimeUnit) -> None: ...


# Random: every stream is equally likely (M56).


@stored_as("classify.uniform", version=1, fields=())
class Uniform:
    def choose(self, unit: TimeUnit) -> None:
        left = np.flatnonzero(unit.view.present & ~unit.view.observed)
        _observe_streams(unit.view, unit.random.permutation(left)[: unit.remaining])


@kernel
def _observe_streams(view: TimeUnitArrays, streams: Int64s) -> None:
    for stream in streams:
        observe_stream(view, *divmod(stream, view.values.shape[1]))


# Best feature first (BFF): the stream with the greatest expected reduction of risk (M53).
#
# The value of a stream is unknown before its observation, so its expectation E[x] is used:
#
#     Q_Bayes(X) = R_before − R_after(E[x])   greedy by Bayes risk (5.8)
#     Q_Obs(X)   = R_obs_before − R_obs_after(E[x])   BFF (5.12, 5.13)
#
# Q_Bayes may prefer a stream merely because the risk at E[x] is low. Q_Obs omits the part of the risk that
# no observation reduces. An observation changes only the task of its stream.


@stored_as("classify.greedy", version=1, fields=("_observational", "_pruning"))
class BestFeatureFirst:
    """Greedy policy by Q_Obs (`observational`, BFF) or by Q_Bayes.

    With `pruning`, Q is computed for fewer streams.
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
            self._pruning.note(quality, candidates)
        order = unit.random_task_order(), unit.random_feature_order()
        _best_first(view, unit.remaining, self._observational, quality, *order)
        # If no observation reduces the risk further, use the remaining capacity at random.
        Uniform().choose(unit)


def qualities(view: TimeUnitArrays, observational: bool) -> Floats:
    """Return Q of every stream (n, k)."""
    found = np.zeros(view.present.shape)
    _first_qualities(view, np.ones_like(view.present), observational, found)
    return found


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


# Highest variance of worst task (HVWT): cheaper than BFF and nearly as good (M55).
#
# The worst task has the highest observational risk. Its stream with the highest variance is observed,
# because this stream has most probably crossed the border between two classes. Only one risk is computed
# per observed stream.


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


# LoadStar: observes whole tasks, in order of expected gain (M56).
#
# The gain of a task is the decrease of its Bayes risk if all its streams had their expected values (X9,
# because the published ranking is not specified). The last task may be observed partly.


@stored_as("classify.loadstar", version=1, fields=())
class LoadStar:
    def choose(self, unit: TimeUnit) -> None:
        tasks = unit.random_task_order()
        gain = gains(unit.view)
        ranked = tasks[np.argsort(-gain[tasks], kind="stable")]
        _whole_tasks(unit.view, unit.remaining, ranked, unit.random_feature_order())


@kernel
def gains(view: TimeUnitArrays) -> Floats:
    """Return the expected decrease of each task's risk."""
    tasks, features = view.present.shape
    found = np.empty(tasks)
    for t in range(tasks):
        after = view.base[t].copy()
        for f in range(features):
            if view.observed[t, f]:
                after += view.sampled[t, f]
            else:
                after += view.expected[t, f].reshape(-1, 1)
        found[t] = decide(view.joint[t], view.loss)[1] - decide(after, view.loss)[1]
    return found


@kernel
def _whole_tasks(view: TimeUnitArrays, capacity: int, ranked: Int64s, features: Int64s) -> None:
    for t in ranked:
        for f in features[t]:
            if capacity == 0:
                return
            if view.present[t, f] and not view.observed[t, f]:
                observe_stream(view, t, f)
                capacity -= 1


# Pruning for BFF: streams whose Q need not be computed (M54).
#
# The threshold is the 20th percentile of the positive Q in the previous window of time units. Two kinds of
# streams are skipped: all streams of a task whose observational risk is below the threshold, and streams
# whose Q was below it throughout the window while their task's risk is nearly unchanged. Pruning makes the
# average time unit cheaper, but not the worst.


_PERCENTILE = 20
_SAME = 0.1


@stored_as(
    "classify.pruning",
    version=1,
    fields=("_window", "_threshold", "_seen", "_best", "_risks", "_low", "_usual"),
)
class Pruning:
    """Pruning by the Q of recent time units. `window` is their number."""

    def __init__(self, window: int = 20) -> None:
        self._window = window
        self._threshold = 0.0
        self._seen: list[Floats] = []
        self._best: Floats | None = None  # the greatest Q of each stream in this window
        self._risks: list[Floats] = []
        self._low: Bools | None = None  # streams under the threshold throughout the last window
        self._usual: Floats | None = None  # observational risk of each task in the last window

    def candidates(self, observational_risk: Floats, present: Bools) -> Bools:
        """Return the streams whose Q must be computed, given the tasks' observational risk."""
        self._risks.append(observational_risk)
        kept = present & (observational_risk >= self._threshold)[:, np.newaxis]
        if self._low is not None and self._usual is not None:
            same = np.abs(observational_risk - self._usual) <= _SAME * self._usual
            kept &= ~(self._low & same[:, np.newaxis])
        return np.asarray(kept)

    def note(self, quality: Floats, weighed: Bools) -> None:
        """Record the computed Q of a time unit."""
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
        # A stream whose Q was never computed keeps its previous status.
        never = np.isneginf(self._best)
        before = np.zeros_like(never) if self._low is None else self._low
        self._low = np.where(never, before, self._best < self._threshold)
        self._usual = np.mean(self._risks, axis=0)
        self._seen, self._risks, self._best = [], [], None


# Policies by their names in ESL and in the lab.


POLICIES: Mapping[str, Callable[[], ObservationPolicy]] = {
    "bff": lambda: BestFeatureFirst(observational=True),
    "bff_pruned": lambda: BestFeatureFirst(observational=True, pruning=Pruning()),
    "hvwt": Hvwt,
    "loadstar": LoadStar,
    "q_bayes": lambda: BestFeatureFirst(observational=False),
    "random": Uniform,
}
