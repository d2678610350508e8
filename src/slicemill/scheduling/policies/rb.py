"""Rate based: the path to one query that gives most results by time; best within a query (P11).

Results of several queries that a unit serves are not added up: that is `hr`.
"""

from __future__ import annotations

from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.portions import Aim


def priority(batches: Batches) -> Floats:
    return batches.rate(Aim.PATH)
