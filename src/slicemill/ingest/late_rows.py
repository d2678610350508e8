"""Late rows: rows below the watermark, or too far below an earlier row of their partition (M24-M27).

    slack 2, watermark 4                       5    7    6    4    3
    late?                                      no   no   no   yes  yes     7 - 2 > 4, and 3 < 4

The intake stores late rows in the log of `<stream>_late` (`ingest.intake`).
"""

from __future__ import annotations

import numpy as np

from slicemill.kernels.arrays import Bools, Int64s
from slicemill.time import BEGINNING


def find_late_rows(times: Int64s, max_ts: int | None, slack_us: int, watermark: int) -> Bools:
    """Return a mask of the late rows of one partition.

    A row is late if its timestamp is below the watermark, or more than `slack_us` below an earlier row.
    `max_ts` is the greatest timestamp of previous reads, or None before the first read.

    >>> find_late_rows(np.array([5, 7, 6, 4, 3]), None, 2, 4).tolist()
    [False, False, False, True, True]
    """
    before = np.empty_like(times)
    if len(times):
        # The initial maximum avoids an overflow below the smallest integer.
        before[0] = BEGINNING + slack_us if max_ts is None else max_ts
        before[1:] = times[:-1]
        np.maximum.accumulate(before, out=before)
    found: Bools = times < np.maximum(before - slack_us, watermark)
    return found
