"""Assignment of timestamps to panes, given the edge grids (slicemill.operators.panes.grids)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Ints: TypeAlias = NDArray[np.int64]

_BEFORE = -(2**63) + 1


def cut(ts: Ints, edges: tuple[tuple[int, int], ...], not_before: int) -> tuple[Ints, Ints]:
    """Return the pane starts of sorted timestamps, and each pane's first position.

    `not_before` is the start of the newest known pane. Panes never start earlier, even if a changed plan has
    a coarser grid.

    >>> starts, borders = cut(np.array([1, 2, 9, 10, 31]), ((10, 0), (10, 3)), -100)
    >>> starts.tolist(), borders.tolist()
    ([0, 3, 10, 30], [0, 2, 3, 4, 5])
    """
    table = np.array(edges, np.int64)
    starts, borders = _cut(ts, table[:, 0].copy(), table[:, 1].copy())
    return np.maximum(starts, not_before), borders


@kernel
def _cut(ts: Ints, steps: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    starts, borders = np.empty(len(ts), np.int64), np.empty(len(ts) + 1, np.int64)
    count, edge = 0, _BEFORE
    for i in range(len(ts)):
        if count == 0 or ts[i] >= edge:
            begin, edge = _BEFORE, -_BEFORE
            for g in range(len(steps)):
                below = (ts[i] - offsets[g]) // steps[g] * steps[g] + offsets[g]
                begin, edge = max(begin, below), min(edge, below + steps[g])
            starts[count], borders[count] = begin, i
            count += 1
    borders[count] = len(ts)
    return starts[:count], borders[: count + 1]
