"""Best feature first: always the stream that is expected to take most risk away (M53).

Before it is looked at, a stream's value is not known: its expectation E[x] stands for it.

    Q_Bayes(X) = R_before − R_after(E[x])            greedy by Bayes risk (5.8)
    Q_Obs(X)   = R_obs_before − R_obs_after(E[x])    BFF (5.12, 5.13)

Q_Bayes may prefer a stream merely because risk at E[x] is low whatever is known; Q_Obs leaves out the part of
the risk that no looking removes. Looking changes the task of the stream and no other.
"""

from __future__ import annotations

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Bools, Floats, Ints
from slicemill.shedding.classify.policies.pruning import Pruning
from slicemill.shedding.classify.policies.uniform import Uniform
from slicemill.shedding.classify.risk import decide, decide_knowing
from slicemill.shedding.classify.unit import TimeUnit, TimeUnitArrays, decide_all, look
from slicemill.storage.codec import stored_as


@stored_as("classify.greedy", version=1, fields=("_observational", "_pruning"))
class BestFeatureFirst:
    """`observational`: by Q_Obs, which is BFF; else by Q_Bayes. With `pruning`, fewer Q are computed."""

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
        order = unit.shuffled_tasks(), unit.shuffled_features()
        _best_first(view, unit.remaining, self._observational, quality, *order)
        # Where nothing more is to be gained, what is left of the capacity goes anywhere.
        Uniform().choose(unit)


def qualities(view: TimeUnitArrays, observational: bool) -> Floats:
    """Q of every stream: (n, k)."""
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
    view: TimeUnitArrays, capacity: int, observational: bool, quality: Floats, tasks: Ints, features: Ints
) -> None:
    for _ in range(capacity):
        best, best_t, best_f = 0.0, -1, -1
        for t in tasks:
            for f in features[t]:
                if quality[t, f] > best:
                    best, best_t, best_f = quality[t, f], t, f
        if best_t < 0:
            return
        look(view, best_t, best_f)
        _qualities_of(view, best_t, view.present[best_t], observational, quality[best_t])
