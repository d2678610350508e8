"""Inputs, outputs and interface of a call of a user-defined aggregate, which processes columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slicemill.functions.vectors import Vector
from slicemill.kernels.arrays import Bools
from slicemill.types import Type


@dataclass(frozen=True, slots=True)
class Tuples:
    """Batch of input tuples of an aggregate call: argument columns, partitions and timestamps.

    Partitions (or groups) are dense numbers from 0, the same in all batches. Timestamps never decrease.
    """

    arguments: Sequence[Vector]
    partitions: NDArray[np.int32]
    ts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CallAnswers:
    """Values that an aggregate call returned, in the order of the reference engine.

    `numbers` has, for each value, the arrival number of the tuple to which the value belongs. `ts` is the
    timestamp of this tuple, or the time of its expiry where `expired` is True. All results at the arrival of
    tuples with numbers below `answered` have been returned. Numbers below `needed_from` do not occur in
    later answers.
    """

    numbers: NDArray[np.int64]
    ts: NDArray[np.int64]
    columns: list[Vector]
    expired: Bools
    answered: int
    needed_from: int


@dataclass(frozen=True, slots=True)
class Results:
    """Values that TERMINATE of an aggregate returned at the end of a finite input.

    `groups` has the group of each row of `columns`.
    """

    groups: NDArray[np.int64]
    columns: list[Vector]


@dataclass(frozen=True, slots=True)
class ExecutionForm:
    """How an aggregate call is executed: as machine code, as generated Python, or by the interpreter.

    `why` is the reason why no faster form is possible. `source` is the generated code.
    """

    form: str
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.form}, because {self.why}" if self.why else self.form


class Uda(Protocol):
    """Executable call of a user-defined aggregate, whose state is in separate objects.

    Calls are not pickled. Each process prepares a call itself, in milliseconds, and loads its machine code.
    """

    @property
    def returns(self) -> tuple[Type, ...]: ...

    @property
    def how(self) -> ExecutionForm: ...

    def start(self) -> Any:
        """Return the state before the first tuple, which `run` changes in place."""
        ...

    def run(self, state: Any, tuples: Tuples, complete: int | None = None) -> CallAnswers:
        """Process a batch of tuples. `complete` is the watermark after the batch.

        Errors are those of the interpreter (ExpressionError or SlicemillError). The state is unusable after
        an error.
        """
        ...

    def finish(self, state: Any) -> Results:
        """Return the values of TERMINATE for each group of a call without a window.

        Groups are in the order of their first tuples. Without any tuple, group 0 has the result of the empty
        input.
        """
        ...

    def due(self, state: Any) -> int | None:
        """Return the watermark at which the next results are emitted, or None if no results are pending."""
        ...
