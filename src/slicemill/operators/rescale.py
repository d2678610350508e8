"""Redistribution of operator state when the number of subtasks changes (S41).

A subtask is a parallel instance of a task, with its own keys or *stripes*. A stripe has every n-th group of
rows by sequence number. After a rescale, each new subtask selects its rows from the state of old subtasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.catalog.expressions import Expr
from slicemill.columns.keys import stripes_of, subtasks_of
from slicemill.kernels.arrays import Bools
from slicemill.operators.protocol import Keys
from slicemill.operators.subtask import HeavyKey, Subtask

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dimension:
    """Dimension of a grid of subtasks, partitioned by keys or stripes.

    `keys` is None for stripes of sequence numbers. `index` is the position of the new subtask in this
    dimension.
    """

    count: int
    keys: Keys | None
    index: int


@dataclass(frozen=True, slots=True)
class InputChange:
    """Rescale of one input of an operator, as seen by one new subtask.

    `sources` are old subtasks that together have read each row once. `dimensions` determine the rows that the
    new subtask reads.
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
    """Rescale of an operator, as seen by one new subtask.

    All old subtasks have read the rows of `heavy` keys.
    """

    was_by_time: bool
    after: Subtask
    inputs: tuple[InputChange, ...]
    heavy: tuple[HeavyKey, ...] = ()

    def reading_states(self, input_: int, subtasks: Sequence[T | None]) -> list[T]:
        """Return the states of old subtasks that together have read each row once."""
        found = (subtasks[index] for index in self.inputs[input_].sources)
        return [one for one in found if one is not None]

    def storing_states(self, input_: int, subtasks: Sequence[T | None]) -> list[T]:
        """Return the states of old subtasks that together store each row once."""
        if self.was_by_time:
            return [one for one in subtasks if one is not None]
        return self.reading_states(input_, subtasks)

    def is_read(self, input_: int, rows: KeptRows) -> Bools:
        """Return the mask of rows in old state that the new subtask must have read."""
        found = np.ones(len(rows), np.bool_)
        for along in self.inputs[input_].dimensions:
            if along.keys is None:
                at = stripes_of(rows.seqs, along.count)
            else:
                at = subtasks_of([rows.value(key) for key in along.keys], len(rows), along.count)
            found &= at == along.index
        return found

    def is_stored(self, input_: int, rows: KeptRows) -> Bools:
        """Return the mask of rows in old state that the new subtask stores."""
        if self.after.by_time:
            return np.asarray(stripes_of(rows.seqs, self.after.count) == self.after.number)
        return self.is_read(input_, rows)
