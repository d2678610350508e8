"""Chain: most rows that no longer wait by second of work; best for the rows that wait (P11, M7).

The dispatcher's units are not cut further, so it is the slope of the one line down to the end of the path.
"""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches


def priority(batches: Batches) -> Floats:
    return batches.rows / batches.time
