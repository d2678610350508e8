"""Random: streams at random, each as likely as any other (M56)."""

from __future__ import annotations

import numpy as np

from slicemill.shedding.classify.unit import Unit, look


class Uniform:
    def choose(self, unit: Unit) -> None:
        left = np.argwhere(unit.view.present & ~unit.view.observed)
        for task, feature in unit.random.permutation(left)[: unit.remaining]:
            look(unit.view, task, feature)
