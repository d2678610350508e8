"""Rules over readings: cases of products (M42), thefts at the door (M43), duplicates (M47)."""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Flags, Ints


def case_numbers(at: Ints, longest_gap_us: int) -> Ints:
    """The number of each reading's case, from 1: products of one case are read shortly after another (M42).

    >>> case_numbers(np.array([0, 1_000, 2_500, 6_000, 7_000]), 2_000).tolist()
    [1, 1, 1, 2, 2]
    """
    starts = np.diff(at, prepend=at[:1]) > longest_gap_us
    return np.cumsum(starts, dtype=np.int64) + 1


def stolen(at: Ints, authorised: Flags, within_us: int) -> Ints:
    """The items among the readings that raise an alarm, `within_us` after they were seen (M43).

    An item at the door without an authorised person shortly before or after it is being stolen.

    A person exactly that much earlier or later still counts (X14).

    >>> stolen(np.array([0, 3, 20]), np.array([False, True, False]), 5).tolist()
    [2]
    """
    persons, items = at[authorised], np.flatnonzero(~authorised)
    first_near = np.searchsorted(persons, at[items] - within_us, side="left")
    behind_near = np.searchsorted(persons, at[items] + within_us, side="right")
    alone: Ints = items[first_near == behind_near]
    return alone


def is_new(at: Ints, keys: Ints, max_distance_us: int) -> Flags:
    """Which readings stay: those further than that from the previous reading of their key (M47).

    A duplicate counts as previous reading too, so a chain of close readings stays one.

    >>> is_new(np.array([0, 50, 90, 300]), np.array([1, 1, 1, 1]), 60).tolist()
    [True, False, False, True]
    """
    by_key = np.argsort(keys, kind="stable")
    new = np.ones(len(at), np.bool_)
    new[by_key[1:]] = (np.diff(keys[by_key]) != 0) | (np.diff(at[by_key]) > max_distance_us)
    return new
