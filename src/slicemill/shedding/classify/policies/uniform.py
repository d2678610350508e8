"""Random: streams at random, each as likely as any other (M56)."""

from __future__ import annotations

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Ints
from slicemill.shedding.classify.unit import TimeUnit, TimeUnitArrays, look
from slicemill.storage.codec import stored_as


@stored_as("classify.uniform", version=1, fields=())
class Uniform:
    def choose(self, unit: TimeUnit) -> None:
        left = np.flatnonzero(unit.view.present & ~unit.view.observed)
        _look_at(unit.view, unit.random.permutation(left)[: unit.remaining])


@kernel
def _look_at(view: TimeUnitArrays, streams: Ints) -> None:
    for stream in streams:
        look(view, *divmod(stream, view.values.shape[1]))
