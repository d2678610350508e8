"""Inputs and outputs of a user-defined aggregate call over columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slicemill.functions.vectors import Vector
from slicemill.kernels.arrays import Bools
from slicemill.types import Type

# The largest timestamp. As a watermark it means that the input has ended.


@dataclass(frozen=True, slots=True)
class Tuples:
    """Chunk of input tuples: argument columns, partitions and timestamps.

    Partitions (or groups) are dense numbers from 0, the same in all chunks. Timestamps never decrease.
    """

    arguments: Sequence[Vector]
    partitions: NDArray[np.int32]
    ts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CallAnswers:
    """Values that a call returned, in the order of the reference engine.

    `numbers` has the arrival number of the tuple that each value belongs to. `ts` is the timestamp of the
    tuple, or the time of its expiry where `expired` is set. Tuples with arrival numbers below `answered` have
    emitted all results of their arrival. Arrival numbers below `needed_from` will not occur in `numbers`
    again.
    """

    numbers: NDArray[np.int64]
    ts: NDArray[np.int64]
    columns: list[Vector]
    expired: Bools
    answered: int
    needed_from: int


@dataclass(frozen=True, slots=True)
class Results:
    """Values that TERMINATE returned at the end of a finite input.

    `groups` has the group of each row of `columns`.
    """

    groups: NDArray[np.int64]
    columns: list[Vector]


@dataclass(frozen=True, slots=True)
class ExecutionForm:
    """Execution form of a call: `machine code`, `Python` or `interpreter`.

    `why` is the reason why no faster form is possible. `source` is the generated source.
    """

    form: str
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.form}, because {self.why}" if self.why else self.form


class Uda(Protocol):
    """Executable call of an aggregate, with its state in separate objects.

    Calls are not pickled. Each process prepares a call itself, in milliseconds, and loads its machine code.
    """

    @property
    def returns(self) -> tuple[Type, ...]: ...

    @property
    def how(self) -> ExecutionForm: ...

    def start(self) -> Any:
        """Return the state before the first tuple. `run` changes it in place."""
        ...

    def run(self, state: Any, tuples: Tuples, complete: int | None = None) -> CallAnswers:
        """Process tuples; `complete` is the watermark after them.

        Raise the errors of the interpreter (ExpressionError or SlicemillError). The state is unusable after
        an error.
        """
        ...

    def finish(self, state: Any) -> Results:
        """Return the values of TERMINATE, for a call without window.

        Groups are in the order of their first tuples. Without any tuple the result is that of the empty
        input, as group 0.
        """
        ...

    def due(self, state: Any) -> int | None:
        """Return the watermark at which pending output is emitted.

        Return None without pending output.
        """
        ...
