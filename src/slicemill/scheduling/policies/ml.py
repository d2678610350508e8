"""Min-latency: the least work until one more result; within a query it orders as `rb` does (P11).

To give one result at the end, an operator handles one over the selectivity of the rest of the path, so the
work until one result is Σ c / S = C̄ / S.
"""

from __future__ import annotations

import numpy as np

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim

_NO_RESULT = 1e-300


def priority(batches: Batches) -> Floats:
    return -1 / np.maximum(batches.rate(Aim.PATH), _NO_RESULT)
