"""What changes for an operator when its unit gets other cells: where rows are, and where they go (S41)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.cells import cells_of, stripes_of
from slicemill.esl.types.expression import Expr
from slicemill.operators.cell import Cell, HeavyKey
from slicemill.operators.kind import Keys

T = TypeVar("T")
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Dimension:
    """One along which rows of an input differ: by keys, or in turn. The new cell is at a `place` of it."""

    count: int
    keys: Keys | None
    place: int


@dataclass(frozen=True, slots=True)
class InputChange:
    """Of one input: cells of before that have each of its rows once, and which of them the new one reads."""

    sources: tuple[int, ...]
    dimensions: tuple[Dimension, ...]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows that an operator keeps, of which it can say the value of a key."""

    seqs: NDArray[np.int64]
    value: Callable[[Expr], pa.Array]

    def __len__(self) -> int:
        return len(self.seqs)


@dataclass(frozen=True, slots=True)
class Redistribution:
    """One cell of the new ones, input by input; of `heavy` keys all cells of before were given the rows."""

    before: Cell
    after: Cell
    inputs: tuple[InputChange, ...]
    heavy: tuple[HeavyKey, ...] = ()

    def waiting_in(self, input_: int, cells: Sequence[T | None]) -> list[T]:
        """What those cells have that together read each row of an input once."""
        found = (cells[place] for place in self.inputs[input_].sources)
        return [one for one in found if one is not None]

    def stored_in(self, input_: int, cells: Sequence[T | None]) -> list[T]:
        """What those cells have that together store each row of an input once."""
        if self.before.by_time:
            return [one for one in cells if one is not None]
        return self.waiting_in(input_, cells)

    def is_read(self, input_: int, rows: KeptRows) -> Mask:
        """Which rows the new cell reads."""
        found = np.ones(len(rows), np.bool_)
        for along in self.inputs[input_].dimensions:
            if along.keys is None:
                at = stripes_of(rows.seqs, along.count)
            else:
                at = cells_of([rows.value(key) for key in along.keys], len(rows), along.count)
            found &= at == along.place
        return found

    def is_stored(self, input_: int, rows: KeptRows) -> Mask:
        """Which rows the new cell stores."""
        if self.after.by_time:
            return np.asarray(stripes_of(rows.seqs, self.after.count) == self.after.number)
        return self.is_read(input_, rows)
