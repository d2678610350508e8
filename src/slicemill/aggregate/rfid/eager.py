"""Eager denoising: emit in order, once no noise precedes a reading (M46).

After each arrival, all readings before the first noise of the window have been emitted, and none after it.
This first noise disappears in two ways: it expires, or a later reading of its key shows that it is not noise.
The search for the next first noise then emits all readings that it passes.

    7 7 8 7 9 7      first noise: 8. The first two readings of 7 are emitted, the others wait.
"""

from __future__ import annotations

import numpy as np

from slicemill.aggregate.rfid.denoising import Denoised, Ints, numbered
from slicemill.machine_code.kernel import kernel

_NONE = -1


def eager(at: Ints, keys: Ints, window_us: int, threshold: int) -> Denoised:
    """
    >>> at, keys = np.array([0, 1, 2, 3, 9]), np.array([8, 8, 9, 8, 7])
    >>> found = eager(at, keys, 6, 2)
    >>> found.readings.tolist(), found.by.tolist()
    ([0, 1, 3], [1, 1, 4])
    """
    return Denoised(*_eager(at, *numbered(keys), window_us, threshold))


@kernel
def _eager(at: Ints, keys: Ints, n_keys: int, window_us: int, threshold: int) -> tuple[Ints, Ints, Ints, int]:
    n = len(at)
    readings, by, visits = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    noise = np.ones(n, np.bool_)
    count = np.zeros(n_keys, np.int64)
    counters, most_counters = 0, 0
    head, out, first_noise = 0, 0, _NONE
    for x in range(n):
        if first_noise == _NONE:
            first_noise = x
        counters += count[keys[x]] == 0
        count[keys[x]] += 1
        searching = False
        while at[head] < at[x] - window_us:
            visits[x] += 1
            if not searching and noise[head]:
                searching, first_noise = True, _NONE
            elif searching and not noise[head]:
                readings[out], by[out] = head, x
                out += 1
            count[keys[head]] -= 1
            counters -= count[keys[head]] == 0
            head += 1
        most_counters = max(most_counters, counters)
        enough = count[keys[x]] >= threshold
        if not (enough or searching):
            continue
        for r in range(head, x + 1):
            visits[x] += 1
            if enough and keys[r] == keys[x] and noise[r]:
                if not searching and r == first_noise:
                    searching, first_noise = True, _NONE
                noise[r] = False
                # The paper compares times with the first noise. Readings may share a time, so their order
                # decides here.
                if searching or r < first_noise:
                    readings[out], by[out] = r, x
                    out += 1
            elif searching and not noise[r]:
                readings[out], by[out] = r, x
                out += 1
            elif searching:
                searching, first_noise = False, r
                if not enough:
                    break
    if first_noise != _NONE:
        for r in range(first_noise, n):
            if not noise[r]:
                readings[out], by[out] = r, n
                out += 1
    return readings[:out], by[:out], visits, most_counters
