"""Content, cuts and statistics of a chain of slices, for monitoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from slicemill.operators.join.slices.statistics import Statistics
from slicemill.storage.slice import Slice


@dataclass(frozen=True, slots=True)
class SliceContent:
    """Content of a slice: time range and rows by query.

    `part` names the part of the state that the slice belongs to.
    """

    part: str
    slice: Slice | None  # None for small tables, which are kept as they are
    rows: int
    earliest: int
    latest: int
    wanted: Mapping[str, int]  # rows by query


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts of a chain of slices, with the measured reasons.

    Cuts are in seconds of age. Rates are per second. `rewriting` is the cost of a cut for each row that
    reaches the cut, in comparisons.
    """

    part: str
    rate: float
    compared: float  # comparisons of a row per second in the state
    rewriting: float
    finest: tuple[float, ...]
    cheapest: tuple[float, ...]
    used: tuple[float, ...]
    expected_rows: float


@runtime_checkable
class Inspectable(Protocol):
    """State that reports its content, cuts and statistics."""

    def held(self) -> Sequence[SliceContent]: ...

    def cuts(self) -> Sequence[Cuts]: ...

    def statistics(self) -> Statistics | None: ...
