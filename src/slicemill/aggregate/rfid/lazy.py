"""Lazy denoising: emit readings in order, when they leave the window (M45).

A counter per key shows immediately whether there are enough readings. Marking runs backwards and stops at a
marked reading of the key, because all older readings of the key in the window are marked too.
"""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Denoised, Ints, numbered
from slicemill.machine_code.kernel import kernel


def lazy(at: Ints, keys: Ints, window_us: int, threshold: int) -> Denoised:
    """
    >>> at, keys = np.array([0, 1, 2, 3, 9]), np.array([7, 8, 9, 8, 7])
    >>> found = lazy(at, keys, 5, 2)
    >>> found.readings.tolist(), found.by.tolist()
    ([1, 3], [4, 4])
    """
    return Denoised(*_lazy(at, *numbered(keys), window_us, threshold))


@kernel
def _lazy(at: Ints, keys: Ints, n_keys: int, window_us: int, threshold: int) -> tuple[Ints, Ints, Ints, int]:
    n = len(at)
    readings, by, visits = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    noise = np.ones(n, np.bool_)
    count = np.zeros(n_keys, np.int64)
    counters, most_counters = 0, 0
    head, out = 0, 0
    for x in range(n):
        counters += count[keys[x]] == 0
        count[keys[x]] += 1
        while at[head] < at[x] - window_us:
            visits[x] += 1
            if not noise[head]:
                readings[out], by[out] = head, x
                out += 1
            count[keys[head]] -= 1
            counters -= count[keys[head]] == 0
            head += 1
        most_counters = max(most_counters, counters)
        if count[keys[x]] >= threshold:
            for r in range(x, head - 1, -1):
                visits[x] += 1
                if keys[r] == keys[x]:
                    if not noise[r]:
                        break
                    noise[r] = False
    for r in range(head, n):
        if not noise[r]:
            readings[out], by[out] = r, n
            out += 1
    return readings[:out], by[:out], visits, most_counters
