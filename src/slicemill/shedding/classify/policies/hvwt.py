"""HVWT, highest variance of worst task: cheaper than BFF, and by experience nearly as good (M55).

The task with the highest observational risk is the worst. Of its streams the one that moves most is looked
at, as the likeliest to have crossed the border between two classes; that can be wrong. Only one risk is
computed for each stream that is looked at.
"""

from __future__ import annotations

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Floats, Ints
from slicemill.shedding.classify.risk import decide
from slicemill.shedding.classify.unit import TimeUnit, TimeUnitArrays, decide_all, look
from slicemill.storage.codec import stored_as


@stored_as("classify.hvwt", version=1, fields=())
class Hvwt:
    def choose(self, unit: TimeUnit) -> None:
        risks = decide_all(unit.view)[2]
        order = unit.shuffled_tasks(), unit.shuffled_features()
        _worst_first(unit.view, unit.remaining, risks, unit.variance, *order)


@kernel
def _worst_first(
    view: TimeUnitArrays, capacity: int, risks: Floats, variance: Floats, tasks: Ints, features: Ints
) -> None:
    for _ in range(capacity):
        worst, widest = -1, -1
        for t in tasks:
            if worst >= 0 and risks[t] <= risks[worst]:
                continue
            place = -1
            for f in features[t]:
                left = view.present[t, f] and not view.observed[t, f]
                if left and (place < 0 or variance[t, f] > variance[t, place]):
                    place = f
            if place >= 0:
                worst, widest = t, place
        look(view, worst, widest)
        risks[worst] = decide(view.joint[worst], view.loss)[2]
