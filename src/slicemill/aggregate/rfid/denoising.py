"""What the ways of denoising have in common.

A reading is no noise if some stretch of time of the window's length around it holds at least `threshold`
readings of its key. How soon that is known, in what order readings leave and how much is looked at for it is
where `baseline`, `lazy` and `eager` differ. In all of them the window is a range of the input: the readings
from the oldest that has not expired to the one that has just come.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Denoised(NamedTuple):
    """Which readings came out, in what order, at which arrival, and at what cost.

    `by` is the number of the arrival that let a reading out. At the end of the stream all that is known to be
    no noise is flushed in order (X8); `by` is then the number of readings.
    """

    readings: Ints
    by: Ints
    visits: Ints
    """How many readings of the window each arrival looked at."""
    most_keys: int
    """The most counters that were in use at once; 0 where there are none."""


def numbered(keys: Ints) -> tuple[Ints, int]:
    """Keys as numbers from 0, so that an array can count them, and how many there are."""
    distinct, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int64), len(distinct)


def expected_keys(readings: float, repeats: float, noise: float) -> float:
    """How many keys there are among so many readings: one per tag, and one per reading that is noise.

    >>> round(expected_keys(1000, 10, 0.01))
    110
    """
    return readings * (1 / repeats + noise)
