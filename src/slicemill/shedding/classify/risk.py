"""Bayes risk and observational risk of one task, over samples of its feature vector (M51, M52, M54).

`joint` is (C, h): the log of prior times densities, for each class and sample. The integrals of M51 and M52
are plain means over the samples. Writing R for the risk of the class that is said:

    R_before = mean of the least risk at each sample  +  R_obs
               (unavoidable)                             (what knowing the sample would save)
"""

from __future__ import annotations

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Floats


@kernel
def decide(joint: Floats, loss: Floats) -> tuple[int, float, float]:
    """The class of least expected risk (5.4), that risk (5.3), and its observational part (5.11)."""
    classes, samples = joint.shape
    risks = np.zeros(classes)
    optimal = 0.0
    weights = np.empty(classes)
    for s in range(samples):
        top = joint[0, s]
        for c in range(1, classes):
            top = max(top, joint[c, s])
        total = 0.0
        for c in range(classes):
            weights[c] = np.exp(joint[c, s] - top)
            total += weights[c]
        least = np.inf
        for i in range(classes):
            risk = 0.0
            for j in range(classes):
                risk += loss[i, j] * weights[j]
            risk /= total
            risks[i] += risk
            least = min(least, risk)
        optimal += least
    best = 0
    for i in range(1, classes):
        if risks[i] < risks[best]:
            best = i
    # Sums of the same terms in the same order: where one class is best at every sample this is 0 exactly.
    return best, risks[best] / samples, max(risks[best] - optimal, 0.0) / samples


@kernel
def decide_knowing(joint: Floats, sampled: Floats, known: Floats, loss: Floats) -> tuple[int, float, float]:
    """The same after a feature is known: its densities at the samples (C, h) give way to those known (C)."""
    classes, samples = joint.shape
    after = np.empty((classes, samples))
    for c in range(classes):
        for s in range(samples):
            after[c, s] = joint[c, s] - sampled[c, s] + known[c]
    return decide(after, loss)
