"""LoadStar: whole tasks, the best first (M56).

Tasks are ranked by how much their Bayes risk would fall if all streams were at their expected values (X9:
the published ranking is not given); at the end of the capacity, some streams of a task are looked at.
"""

from __future__ import annotations

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Floats, Ints
from slicemill.shedding.classify.risk import decide
from slicemill.shedding.classify.unit import TimeUnit, TimeUnitArrays, look
from slicemill.storage.codec import stored_as


@stored_as("classify.loadstar", version=1, fields=())
class LoadStar:
    def choose(self, unit: TimeUnit) -> None:
        tasks = unit.shuffled_tasks()
        gain = gains(unit.view)
        ranked = tasks[np.argsort(-gain[tasks], kind="stable")]
        _whole_tasks(unit.view, unit.remaining, ranked, unit.shuffled_features())


@kernel
def gains(view: TimeUnitArrays) -> Floats:
    """By how much each task's risk would fall."""
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
def _whole_tasks(view: TimeUnitArrays, capacity: int, ranked: Ints, features: Ints) -> None:
    for t in ranked:
        for f in features[t]:
            if capacity == 0:
                return
            if view.present[t, f] and not view.observed[t, f]:
                look(view, t, f)
                capacity -= 1
