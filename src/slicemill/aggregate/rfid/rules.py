"""Rules over readings: cases (M42), door alarms (M43), deduplication (M47)."""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Flags, Ints


def case_numbers(at: Ints, longest_gap_us: int) -> Ints:
    """Return the case number of each reading, from 1 (M42).

    Products of one case are read with short gaps.

    >>> case_numbers(np.array([0, 1_000, 2_500, 6_000, 7_000]), 2_000).tolist()
    [1, 1, 1, 2, 2]
    """
    starts = np.diff(at, prepend=at[:1]) > longest_gap_us
    return np.cumsum(starts, dtype=np.int64) + 1


def stolen(at: Ints, authorised: Flags, within_us: int) -> Ints:
    """Return the items that raise an alarm, `within_us` after their reading (M43).

    An item at the door is being stolen unless an authorised person is read shortly before or after it. A
    person exactly `within_us` earlier or later still counts (X14).

    >>> stolen(np.array([0, 3, 20]), np.array([False, True, False]), 5).tolist()
    [2]
    """
    persons, items = at[authorised], np.flatnonzero(~authorised)
    first_near = np.searchsorted(persons, at[items] - within_us, side="left")
    behind_near = np.searchsorted(persons, at[items] + within_us, side="right")
    alone: Ints = items[first_near == behind_near]
    return alone


def is_new(at: Ints, keys: Ints, max_distance_us: int) -> Flags:
    """Return a mask of readings that are not duplicates (M47).

    A reading is kept if it is further than `max_distance_us` from the previous reading of its key. Duplicates
    count as previous readings, so a chain of close readings is one reading.

    >>> is_new(np.array([0, 50, 90, 300]), np.array([1, 1, 1, 1]), 60).tolist()
    [True, False, False, True]
    """
    by_key = np.argsort(keys, kind="stable")
    new = np.ones(len(at), np.bool_)
    new[by_key[1:]] = (np.diff(keys[by_key]) != 0) | (np.diff(at[by_key]) > max_distance_us)
    return new
