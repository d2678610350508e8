"""What a call of a user's aggregate takes and gives when it runs over whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slicemill.esl.types.schema import Type
from slicemill.scalar.vectors import Mask, Vector

# No timestamp is later: tuples that are complete up to here have ended.
END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Tuples:
    """The next tuples of a call: its argument columns, and for each tuple partition and timestamp.

    Partitions (or groups) are dense numbers from 0 on, which mean the same in every chunk. Timestamps never
    decrease.
    """

    arguments: Sequence[Vector]
    partitions: NDArray[np.int32]
    ts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CallAnswers:
    """What a call returned: a row for each value, in the order of the reference engine.

    `numbers` are the arrival numbers of the tuples answered, `ts` when: the tuple's own timestamp, or that of
    its expiry where `expired` holds. Every tuple before `answered` has had all that it returns on arrival.
    Tuples before `needed_from` will not be named again.
    """

    numbers: NDArray[np.int64]
    ts: NDArray[np.int64]
    columns: list[Vector]
    expired: Mask
    answered: int
    needed_from: int


@dataclass(frozen=True, slots=True)
class Results:
    """What TERMINATE returned at the end of a finite input: the group of each row, and the columns."""

    groups: NDArray[np.int64]
    columns: list[Vector]


@dataclass(frozen=True, slots=True)
class ExecutionForm:
    """How a call runs: `machine code`, `Python` or `interpreter`; why not better; the generated source."""

    form: str
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.form}, because {self.why}" if self.why else self.form


class Uda(Protocol):
    """A call that is ready to run. It holds no state of its own, so one serves any number of states.

    It is not for pickling: other processes prepare it again, in milliseconds, and load its machine code.
    """

    @property
    def returns(self) -> tuple[Type, ...]: ...

    @property
    def how(self) -> ExecutionForm: ...

    def start(self) -> Any:
        """The state before any tuple: one object that checkpoints can store, which `run` changes in place."""
        ...

    def run(self, state: Any, tuples: Tuples, complete: int | None = None) -> CallAnswers:
        """Takes the next tuples; every later one has timestamp `complete` or a greater one.

        An error is the interpreter's (ExpressionError or SlicemillError); the state is of no use after it.
        """
        ...

    def finish(self, state: Any) -> Results:
        """Of a call without window: what TERMINATE returns, groups in order of their first tuple.

        A state without any tuple gives what the aggregate returns over no tuple at all, as group 0.
        """
        ...

    def due(self, state: Any) -> int | None:
        """How far tuples must be complete for something that waits to come out; None if nothing does."""
        ...
