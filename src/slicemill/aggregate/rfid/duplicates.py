"""Repeated readings of one key merge into the first of them (M47)."""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Flags, Ints


def is_new(at: Ints, keys: Ints, max_distance_us: int) -> Flags:
    """Which readings stay: those further than that from the previous reading of their key, if there is one.

    A duplicate counts as previous reading too, so a chain of close readings stays one.

    >>> is_new(np.array([0, 50, 90, 300]), np.array([1, 1, 1, 1]), 60).tolist()
    [True, False, False, True]
    """
    by_key = np.argsort(keys, kind="stable")
    new = np.ones(len(at), np.bool_)
    new[by_key[1:]] = (np.diff(keys[by_key]) != 0) | (np.diff(at[by_key]) > max_distance_us)
    return new
