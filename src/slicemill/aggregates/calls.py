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
    """Next tuples of a call: argument columns, partitions and timestamps.

    Partitions (or groups) are dense numbers from 0, with the same meaning in every chunk. Timestamps never
    decrease.
    """

    arguments: Sequence[Vector]
    partitions: NDArray[np.int32]
    ts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CallAnswers:
    """Returned values, one row each, in the reference engine's order.

    `numbers` are the arrival numbers of the tuples that the values belong to. `ts` is the tuple's own
    timestamp, or the time of its expiry where `expired` is set. All values that the tuples before `answered`
    return on arrival have been emitted. Tuples before `needed_from` will not occur in `numbers` again.
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

    `why` says why no faster form is possible; `source` is the generated source.
    """

    form: str
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.form}, because {self.why}" if self.why else self.form


class Uda(Protocol):
    """Compiled call. Its state is separate, so one call serves many states.

    Calls are not pickled. Other processes prepare the call again, in milliseconds, and load its machine code.
    """

    @property
    def returns(self) -> tuple[Type, ...]: ...

    @property
    def how(self) -> ExecutionForm: ...

    def start(self) -> Any:
        """Return the state before any tuple; checkpoints store it, `run` mutates it."""
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
