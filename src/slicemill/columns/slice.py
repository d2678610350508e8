"""Slices: immutable pieces of an operator's state.

State that grows is kept in slices, each a table that never changes once it is made. So it is stored once, and
only referred to afterwards; one that comes back from storage is opened when it is first looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from slicemill.operators.join.slices.statistics import Statistics


class Slice:
    """A table of state rows. `stored` is the storage's own note of where it lies, None while it is new."""

    def __init__(self, table: pa.Table | Callable[[], pa.Table], stored: object = None) -> None:
        self._table = table
        self.stored = stored

    @property
    def table(self) -> pa.Table:
        if not isinstance(self._table, pa.Table):
            self._table = self._table()
        return self._table


@dataclass(frozen=True, slots=True)
class Held:
    """What a slice holds, for people to look at: which part of the state it is, and who wants its rows."""

    part: str
    slice: Slice | None  # None for a few rows that are kept as they are
    rows: int
    earliest: int
    latest: int
    wanted: Mapping[str, int]  # rows by member


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where a chain of slices is cut, in seconds of age, and the measured reasons; rates are per second.

    `rewriting` is what a cut costs for each tuple that comes to it, in comparisons.
    """

    part: str
    rate: float
    compared: float  # how often a tuple is compared in a second that it is kept
    rewriting: float
    finest: tuple[float, ...]
    cheapest: tuple[float, ...]
    used: tuple[float, ...]
    expected_rows: float


@runtime_checkable
class Telling(Protocol):
    """A state that can say what it holds, where it is cut, and what it has measured."""

    def held(self) -> Sequence[Held]: ...

    def cuts(self) -> Sequence[Cuts]: ...

    def statistics(self) -> Statistics | None: ...
