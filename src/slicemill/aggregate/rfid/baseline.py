"""Baseline denoising: scan the whole window at each reading (M44).

Unordered, it emits a key's readings as soon as there are enough of them, possibly before older readings of
other keys. Ordered, it only marks these readings, and emits them when they leave the window. The cost is Θ(n)
per reading for a window of n.
"""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Denoised, Ints
from slicemill.machine_code.kernel import kernel


def baseline(at: Ints, keys: Ints, window_us: int, threshold: int, *, ordered: bool) -> Denoised:
    """
    >>> at, keys = np.array([0, 1, 2, 3]), np.array([7, 8, 9, 8])
    >>> baseline(at, keys, 5, 2, ordered=False).readings.tolist()
    [1, 3]
    """
    return Denoised(*_baseline(at, keys, window_us, threshold, ordered), most_keys=0)


@kernel
def _baseline(at: Ints, keys: Ints, window_us: int, threshold: int, ordered: bool) -> tuple[Ints, Ints, Ints]:
    n = len(at)
    readings, by, visits = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    known = np.zeros(n, np.bool_)
    head, out = 0, 0
    for x in range(n):
        while at[head] < at[x] - window_us:
            visits[x] += 1
            if ordered and known[head]:
                readings[out], by[out] = head, x
                out += 1
            head += 1
        same = 0
        for r in range(head, x + 1):
            visits[x] += 1
            if keys[r] == keys[x]:
                same += 1
        if same >= threshold:
            visits[x] += same
            for r in range(head, x + 1):
                if keys[r] == keys[x] and not known[r]:
                    known[r] = True
                    if not ordered:
                        readings[out], by[out] = r, x
                        out += 1
    for r in range(head, n):
        if ordered and known[r]:
            readings[out], by[out] = r, n
            out += 1
    return readings[:out], by[:out], visits
