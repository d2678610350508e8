"""What a chain of slices holds, where it is cut and what it has measured: for people to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from slicemill.operators.join.slices.statistics import Statistics
from slicemill.storage.slice import Slice


@dataclass(frozen=True, slots=True)
class SliceContent:
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
class Inspectable(Protocol):
    """A state that can say what it holds, where it is cut, and what it has measured."""

    def held(self) -> Sequence[SliceContent]: ...

    def cuts(self) -> Sequence[Cuts]: ...

    def statistics(self) -> Statistics | None: ...
