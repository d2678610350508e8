"""What a step is: it takes the new rows of its inputs and how far each input is complete.

A shared step answers several queries at once: it gives a part for each of its members, and a member that
fails takes no other with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from slicemill.errors import SlicemillError

# No timestamp is later: an input that is complete up to here has ended.
END = 2**63 - 1

# What one member of a shared step gets: its rows and how far they are complete, or why there are none.
StepResult: TypeAlias = tuple[pa.Table, int] | SlicemillError


class Step(Protocol):
    """`complete[i]`: no later row of input i has a timestamp below it. Returns the same of the output."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]: ...


class Stateful(Protocol):
    """Keeps something from run to run: `state` is all of it, as a checkpoint stores it.

    It consists of plain values, arrays, tables and classes that are registered (`storage.codec`). A `Slice`
    in the state is written once, when it is new, and then only referred to. So a state that holds
    much keeps it in slices, and a run costs what has changed.
    """

    @property
    def state(self) -> object: ...

    def due(self) -> int | None:
        """How far the inputs must be complete for something held back to come out; None if nothing is."""
        ...


class StatefulStep(Step, Stateful, Protocol):
    """One operator with a state."""


class SharedStep(Stateful, Protocol):
    """One operator for many queries: a part for each, in the order of its members."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]: ...
