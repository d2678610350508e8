"""Load shedding: the tuples that a query drops under load.

A drop box is placed between a stream and a query. Each function returns which tuples of a batch to keep,
for a given share. Random decisions depend on the timestamp and arrival number of a tuple, so the same
tuples are kept for any number of cells and batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Dropping:
    """Decision for one run: the share to keep, or the windows to skip.

    For a join, `share` is the share of comparisons to make, and `reach` the newest part of the windows in
    which they are made.
    """

    share: float = 1.0
    skipped: tuple[tuple[int, int], ...] = ()
    reach: float = 1.0


NOTHING = Dropping()


def keep_random(times: Times, seqs: Times, share: float) -> Mask:
    """Keep each tuple with the same probability."""
    return _chances(times, seqs) < share


def keep_useful(times: Times, seqs: Times, utility: npt.NDArray[np.float64], share: float) -> Mask:
    """Keep the most useful tuples, with random choice among equal ones.

    Tuples without a utility (NaN) are dropped first.
    """
    count = math.ceil(share * len(times))
    order = np.lexsort((_chances(times, seqs), -np.nan_to_num(utility, nan=-np.inf)))
    kept = np.zeros(len(times), np.bool_)
    kept[order[:count]] = True
    return kept


def keep_windows(times: Times, range_us: int, skipped: tuple[tuple[int, int], ...]) -> Mask:
    """Keep the tuples of windows that are not skipped.

    Windows [end - range, end) with an end in one of the spans (first, last] are skipped. A tuple is dropped
    if all its windows are skipped.

    >>> keep_windows(np.array([9, 10, 15, 20, 21]), 10, ((10, 30),)).tolist()
    [True, False, False, False, True]
    """
    kept = np.ones(len(times), np.bool_)
    for first, last in skipped:
        kept &= (times < first) | (times + range_us > last)
    return kept


def in_whole_windows(ends: Times, skipped: tuple[tuple[int, int], ...]) -> Mask:
    """Return a mask of the results whose windows were not skipped.

    `ends` are the ends of the results' windows.

    >>> in_whole_windows(np.array([10, 11, 30, 31]), ((10, 30),)).tolist()
    [True, False, False, True]
    """
    whole = np.ones(len(ends), np.bool_)
    for first, last in skipped:
        whole &= (ends <= first) | (ends > last)
    return whole


def _chances(times: Times, seqs: Times) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each tuple (splitmix64)."""
    bits = times.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits += seqs.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
