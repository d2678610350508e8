"""Kernels for aggregation by group.

`group` has the group number of each row or entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel
from slicemill.operators.panes.edges import Ints


@kernel
def first_of_group(group: Ints, groups: int) -> Ints:
    first = np.empty(groups, np.int64)
    for i in range(len(group) - 1, -1, -1):
        first[group[i]] = i
    return first


@kernel
def sum_by_group(values: NDArray[Any], group: Ints, groups: int) -> Ints:
    total = np.zeros(groups, np.int64)
    for i in range(len(group)):
        total[group[i]] += values[i]
    return total


@kernel
def least_of_group(values: Ints, group: Ints, groups: int) -> Ints:
    """Return the position of the first minimum of each group."""
    place = np.full(groups, -1, np.int64)
    for i in range(len(group)):
        g = group[i]
        if place[g] < 0 or values[i] < values[place[g]]:
            place[g] = i
    return place
