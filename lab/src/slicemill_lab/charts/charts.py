"""Cost objectives and progress charts: remaining work over time, with the area as the cost (M2, M3).

A chart is a list of pieces. Each piece takes some time and lowers the curve by a drop. The curve depends on
the objective: inputs still to complete (IC chart), outputs still to deliver (OC), or bytes still buffered
(MR). Numbers may be Fractions, which makes every comparison exact. Times have the caller's task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol, TypeVar

Number = float | Fraction

LEAST_TIME = 1e-9
"""Replaces a measured cost of zero, whose rate would be infinite (P2)."""


class Objective(StrEnum):
    """Objective that a schedule minimises (M2)."""

    INPUT_COMPLETION = "ict"
    OUTPUT_RESPONSE = "ort"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Stage:
    """Operator with its mean figures: time per input tuple, outputs per input, tuple sizes."""

    name: str
    time: Number
    selectivity: Number = 1
    size_in: Number = 1
    size_out: Number = 1

    def __post_init__(self) -> None:
        if self.time < 0 or self.selectivity < 0:
            raise ValueError(f"stage {self.name!r}: time and selectivity must not be negative")
        if self.time == 0:
            object.__setattr__(self, "time", LEAST_TIME)


@dataclass(frozen=True, slots=True)
class Path:
    """Operators from a source to a sink. The weight is the user's for its output (ORT) or input (ICT)."""

    name: str
    stages: tuple[Stage, ...]
    weight: Number = 1

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError(f"path {self.name!r} has no operator")


class Sloped(Protocol):
    """Part of a chart, which takes time and drops the curve."""

    @property
    def time(self) -> Number: ...

    @property
    def drop(self) -> Number: ...


SlopedT = TypeVar("SlopedT", bound=Sloped)


@dataclass(frozen=True, slots=True)
class Piece:
    """Straight piece of a chart. Only an unreachable piece has no time, and no drop."""

    time: Number
    drop: Number

    def __post_init__(self) -> None:
        if self.time < 0 or (self.time == 0 and self.drop != 0):
            raise ValueError(f"a piece that drops {self.drop} must take time, not {self.time}")

    def times(self, tuples: Number) -> Piece:
        """Return the work for a number of tuples: the smoothed line of a queue."""
        return Piece(self.time * tuples, self.drop * tuples)


def slope(part: Sloped) -> Number:
    """Return the drop per unit of time: the rate at which running this part lowers the curve."""
    return part.drop / part.time if part.time else 0


def steeper(a: Sloped, b: Sloped) -> bool:
    """Return True if `a` should run before `b`: exchange rule of two components, without division (M3)."""
    return a.drop * b.time > b.drop * a.time


def steepest_first(parts: Iterable[SlopedT]) -> list[SlopedT]:
    """Sort components or partitions by non-increasing slope. Ties keep their order (M4, X2)."""
    return sorted(parts, key=slope, reverse=True)


def chart(
    stages: Sequence[Stage], objective: Objective, *, delivers: bool = True, weight: Number = 1
) -> list[Piece]:
    """Return the chart of one tuple along consecutive stages, a piece per stage.

    `delivers` is True if the last stage feeds a sink, where tuples take no memory, and False if it feeds a
    buffer. The weight multiplies outputs or inputs. The memory objective is for emergencies and ignores the
    weight (M4).
    """
    pieces = []
    reach: Number = 1
    for number, stage in enumerate(stages, start=1):
        passed = reach * stage.selectivity
        at_sink = delivers and number == len(stages)
        drop: Number
        match objective:
            case Objective.INPUT_COMPLETION:
                drop = weight if at_sink else 0
            case Objective.OUTPUT_RESPONSE:
                drop = weight * passed if at_sink else 0
            case Objective.MEMORY:
                drop = reach * stage.size_in - (0 if at_sink else passed * stage.size_out)
        pieces.append(Piece(reach * stage.time, drop))
        reach = passed
    return pieces


def merged(parts: Iterable[Sloped]) -> Piece:
    """Merge several parts into one black box (M4)."""
    time: Number = 0
    drop: Number = 0
    for part in parts:
        time, drop = time + part.time, drop + part.drop
    return Piece(time, drop)


def smoothed_area(parts: Iterable[Sloped]) -> Number:
    """Return the area below the straight lines of parts that run one after the other.

    Each part contributes its own triangle, and a rectangle for the drops of later parts that wait during its
    time. The order matters because of the rectangles. The published area of a cut fork lacks them (X3).
    """
    area: Number = 0
    before: Number = 0
    for part in parts:
        area += before * part.drop + part.time * part.drop / 2
        before += part.time
    return area


def staircase_area(parts: Iterable[Sloped]) -> Number:
    """Return the area if each part drops only at its end: the total latency of tuples run one by one."""
    area: Number = 0
    now: Number = 0
    for part in parts:
        now += part.time
        area += now * part.drop
    return area
