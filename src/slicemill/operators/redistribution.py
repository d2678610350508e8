"""What changes for an operator when its unit gets other cells: from which, to which (S40, S41)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.cells import cells_by, cells_of, stripes_of
from slicemill.operators.cell import Cell, HeavyKey


@dataclass(frozen=True, slots=True)
class Redistribution:
    """One cell of the new ones, and how rows were spread before.

    `places` says by which of the operator's keys rows go to the new cells, where they go by key. `heavy` are
    the keys whose rows went to all cells before.
    """

    before: Cell
    after: Cell
    places: tuple[int, ...] = ()
    heavy: tuple[HeavyKey, ...] = ()

    def is_mine(self, rows: KeyedRows) -> NDArray[np.bool_]:
        """Which rows of all cells are stored in this one."""
        if self.after.by_time:
            cells = stripes_of(rows.seqs, self.after.count)
        elif self.after.count == 1:
            return np.ones(rows.count, np.bool_)
        else:
            cells = rows.cells(self.places, self.after.count)
        return np.asarray(cells == self.after.number)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The numbers and keys of rows that an operator keeps; of a key of one integer, its hash is enough."""

    seqs: NDArray[np.int64]
    keys: Sequence[pa.ChunkedArray]
    hashes: NDArray[np.uint64]

    @property
    def count(self) -> int:
        return len(self.hashes)

    def cells(self, places: Sequence[int], count: int) -> NDArray[np.uint16]:
        if not self.keys:
            return cells_by(self.hashes, count)
        return cells_of([self.keys[place] for place in places], self.count, count)
