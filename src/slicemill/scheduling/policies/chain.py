"""Chain: most rows that no longer wait by second of work; best for the rows that wait (P11, M7).

The slope is that of the first line in the chart of all that lies behind a unit. What follows on the same line
is at least as steep, so it runs next; what lies behind a cut of the chart waits for its own turn.
"""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def priority(batches: Batches) -> Floats:
    return batches.rate(Aim.MEMORY)
