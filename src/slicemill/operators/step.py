"""What a step is: it takes the new rows of its inputs and how far each input is complete.

A shared step answers several queries at once: it gives a part for each of its members, and a member that
fails takes no other with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.operators.cell import HeavyKey
from slicemill.operators.in_turn import Due
from slicemill.operators.join.heavy import KeyWork
from slicemill.shedding.ages import Compared
from slicemill.shedding.load import Dropping
from slicemill.shedding.report import Report

# What one member of a shared step gets: its rows and how far they are complete, or why there are none.
StepResult: TypeAlias = tuple[pa.Table, int] | SlicemillError


class Step(Protocol):
    """`complete[i]`: no later row of input i has a timestamp below it. Returns the same of the output."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]: ...


@runtime_checkable
class Stateful(Protocol):
    """Keeps something from run to run: `state` is all of it, as a checkpoint stores it.

    It consists of plain values, arrays, tables and classes that are registered (`storage.codec`). A `Slice`
    in the state is written once, when it is new, and then only referred to. So a state that holds
    much keeps it in slices, and a run costs what has changed.
    """

    @property
    def state(self) -> object: ...

    def due(self) -> Due | None:
        """How far the inputs must be complete for something held back to come out; None if nothing is.

        A number is for all of them. In a tuple, each has its own: they are enough all together. Of a list of
        tuples, each is enough by itself.
        """
        ...


class StatefulStep(Step, Stateful, Protocol):
    """One operator with a state."""


class SharedStep(Stateful, Protocol):
    """One operator for many queries: a part for each, in the order of its members."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]: ...


@runtime_checkable
class Shedding(Protocol):
    """A step that may drop something, and says what it has dropped: by node, of its own or of its members."""

    def sheds(self, node_id: str) -> Mapping[str, Report]: ...


@runtime_checkable
class WithBytes(Protocol):
    """A step or operator that has more in its process than what is stored of it, and says how much."""

    def bytes_kept(self) -> int: ...


@runtime_checkable
class Comparing(Protocol):
    """A step that compares rows, and says how often it has in the last run, by their ages."""

    @property
    def compared(self) -> Compared: ...


@runtime_checkable
class Keyed(Protocol):
    """A step of a unit whose rows are spread by key: it says what its keys take, and before each run it is
    told of which keys all cells are given the rows."""

    @property
    def key_work(self) -> KeyWork: ...

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None: ...


@runtime_checkable
class LoadControlled(Protocol):
    """A step that does less under load: before each run it is told what to drop, by node."""

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None: ...


@runtime_checkable
class FirstRow(Protocol):
    """A step that may emit a row before its first tuple (a global aggregate).

    `emits_first_row` is set before each run. It is False in a replay of runs that have not emitted the row.
    """

    emits_first_row: bool


@runtime_checkable
class LastWords(Protocol):
    """A step that gives rows at the end of input, at the time of the last tuple of any cell.

    `latest_elsewhere` is what other cells have said of that, set before each run.
    """

    latest_elsewhere: int

    @property
    def latest_ts(self) -> int: ...
