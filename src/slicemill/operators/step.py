"""Interfaces of execution steps: new input rows and watermarks in, rows out.

A shared step returns a result for each of its members. An error of one member does not affect other members.
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

# Result of one member of a shared step: its rows and their watermark, or an error.
StepResult: TypeAlias = tuple[pa.Table, int] | SlicemillError


class Step(Protocol):
    """Step of an operator; `complete` are input watermarks.

    No later row of input i is below `complete[i]`. `run` returns the output rows and the output watermark.
    """

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]: ...


@runtime_checkable
class Stateful(Protocol):
    """Step with state; `state` is all of it, as stored by checkpoints.

    It consists of plain values, arrays, tables and registered classes (`storage.codec`). A `Slice` in the
    state is written once, when it is new, and referenced afterwards. Large states are therefore kept in
    slices, so that the cost of a run depends only on what has changed.
    """

    @property
    def state(self) -> object: ...

    def due(self) -> Due | None:
        """Return the input watermarks that release held rows; None if nothing is held.

        A number applies to all inputs. A tuple has a watermark for each input, all of which are needed. A
        list of tuples has alternatives.
        """
        ...


class StatefulStep(Step, Stateful, Protocol):
    """Step of one operator with state."""


class SharedStep(Stateful, Protocol):
    """Step of one operator for many queries; one result for each member."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]: ...


@runtime_checkable
class Shedding(Protocol):
    """Step that may shed rows.

    It reports shed rows by node: its own node, or the nodes of its members.
    """

    def sheds(self, node_id: str) -> Mapping[str, Report]: ...


@runtime_checkable
class WithBytes(Protocol):
    """Step or operator with memory in addition to its stored state."""

    def bytes_kept(self) -> int: ...


@runtime_checkable
class Comparing(Protocol):
    """Step that compares rows; counts comparisons of the last run by age."""

    @property
    def compared(self) -> Compared: ...


@runtime_checkable
class Keyed(Protocol):
    """Step of a unit that is partitioned by key.

    It reports the work by key, and gets the keys whose rows all cells read before each run.
    """

    @property
    def key_work(self) -> KeyWork: ...

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None: ...


@runtime_checkable
class LoadControlled(Protocol):
    """Step that sheds load.

    The rows or pairs to drop are set by node before each run.
    """

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None: ...


@runtime_checkable
class FirstRow(Protocol):
    """Step that may emit a row before its first input row.

    An example is a global aggregate. `emits_first_row` is set before each run. It is False in a replay of
    runs that have not emitted the row.
    """

    emits_first_row: bool


@runtime_checkable
class LastWords(Protocol):
    """Step that emits rows at the end of input.

    Their time is that of the last row. `latest_elsewhere` is the time of the last row in other cells, set
    before each run.
    """

    latest_elsewhere: int

    @property
    def latest_ts(self) -> int: ...
