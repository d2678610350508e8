"""Where sessions begin and end, in one pass over rows that are sorted by key and time.

A tuple holds its session open up to its own end: its time and the gap, or what a column says. The next tuple
of the key belongs to the session if it comes up to then; a tuple that closes the session is its last one.

    gap 3      0  1  2  3  4  5  6  7  8  9  10
    tuples     a     b        c              d
               [a----------)                        a to 3
                     [b----------)                  b to 5: the session holds until 5
                              [c---------)          c comes in time: until 8
                                             [d     d begins another
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

FOREVER = 2**62  # an end that time never reaches


@kernel
def session_borders(
    keys: Integers, times: Integers, ends: Integers, closes: Mask
) -> tuple[Integers, Integers]:
    """The first row of each session, and when the session ends."""
    starts, until = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    count = 0
    closed = True
    for i in range(len(keys)):
        if closed or keys[i] != keys[i - 1] or times[i] > until[count - 1]:
            starts[count] = i
            until[count] = times[i]
            count += 1
        until[count - 1] = max(until[count - 1], ends[i])
        closed = bool(closes[i])
        if closed:
            until[count - 1] = times[i]
    return starts[:count].copy(), until[:count].copy()
