"""Shared parts of the denoising algorithms for RFID readings.

A reading is noise unless some time range around it, as long as the window, contains at least `threshold`
readings of its key. `baseline`, `lazy` and `eager` differ in when this is detected, in the order of emitted
readings, and in cost. In all of them the window is a range of the input, from the oldest reading that has not
expired to the latest one.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Denoised(NamedTuple):
    """Emitted readings in order, their times of emission, and the cost.

    `by` is the number of the arrival that emitted a reading. At the end of the stream, all readings that are
    known not to be noise are flushed in order (X8); `by` is then the number of readings.
    """

    readings: Ints
    by: Ints
    visits: Ints
    """Number of the window's readings that each arrival read."""
    most_keys: int
    """Largest number of counters in use at once; 0 without counters."""


def numbered(keys: Ints) -> tuple[Ints, int]:
    """Return keys as dense numbers from 0, and the number of keys."""
    distinct, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int64), len(distinct)


def expected_keys(readings: float, repeats: float, noise: float) -> float:
    """Return the expected number of keys among so many readings.

    There is one key per tag, and one per noise reading.

    >>> round(expected_keys(1000, 10, 0.01))
    110
    """
    return readings * (1 / repeats + noise)
