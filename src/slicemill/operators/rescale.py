"""Rescale of an operator: cells of rows before and after the rescale (S41)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.catalog.expressions import Expr
from slicemill.columns.keys import cells_of, stripes_of
from slicemill.kernels.arrays import Bools
from slicemill.operators.cell import Cell, HeavyKey
from slicemill.operators.protocol import Keys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dimension:
    """Dimension of a grid of cells, partitioned by keys or stripes.

    `keys` is None for stripes of sequence numbers. `place` is the index of the new cell in this dimension.
    """

    count: int
    keys: Keys | None
    place: int


@dataclass(frozen=True, slots=True)
class InputChange:
    """Rescale of one input.

    `sources` are old cells that together have read each row once. `dimensions` determine the rows that the
    new cell reads.
    """

    sources: tuple[int, ...]
    dimensions: tuple[Dimension, ...]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows in an operator's state, with the values of their keys."""

    seqs: NDArray[np.int64]
    value: Callable[[Expr], pa.Array]

    def __len__(self) -> int:
        return len(self.seqs)


@dataclass(frozen=True, slots=True)
class Redistribution:
    """Rescale, as seen by one new cell.

    All old cells have read the rows of `heavy` keys.
    """

    was_by_time: bool
    after: Cell
    inputs: tuple[InputChange, ...]
    heavy: tuple[HeavyKey, ...] = ()

    def reading_states(self, input_: int, cells: Sequence[T | None]) -> list[T]:
        """Return states that together have read each row once."""
        found = (cells[place] for place in self.inputs[input_].sources)
        return [one for one in found if one is not None]

    def storing_states(self, input_: int, cells: Sequence[T | None]) -> list[T]:
        """Return the states of old cells that together store each row once."""
        if self.was_by_time:
            return [one for one in cells if one is not None]
        return self.reading_states(input_, cells)

    def is_read(self, input_: int, rows: KeptRows) -> Bools:
        """Return the mask of rows that the new cell reads."""
        found = np.ones(len(rows), np.bool_)
        for along in self.inputs[input_].dimensions:
            if along.keys is None:
                at = stripes_of(rows.seqs, along.count)
            else:
                at = cells_of([rows.value(key) for key in along.keys], len(rows), along.count)
            found &= at == along.place
        return found

    def is_stored(self, input_: int, rows: KeptRows) -> Bools:
        """Return the mask of rows that the new cell stores."""
        if self.after.by_time:
            return np.asarray(stripes_of(rows.seqs, self.after.count) == self.after.number)
        return self.is_read(input_, rows)
