"""Products of one case are read shortly after another; a longer gap starts the next case (M42)."""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Ints


def case_numbers(at: Ints, longest_gap_us: int) -> Ints:
    """The number of each reading's case, from 1.

    >>> case_numbers(np.array([0, 1_000, 2_500, 6_000, 7_000]), 2_000).tolist()
    [1, 1, 1, 2, 2]
    """
    starts = np.diff(at, prepend=at[:1]) > longest_gap_us
    return np.cumsum(starts, dtype=np.int64) + 1
