"""Periods of valid time [begin, end) and how two of them lie to each other (L7).

Of Allen's thirteen relations exactly one holds between any two periods. The last three are looser and may
hold beside them.
"""

# ruff: noqa: ARG005 (every relation is a formula over a, b, c, d)

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from slicemill.scalar.values import ExpressionError, Scalar, plain

Period: TypeAlias = tuple[int, ...]  # begin, end, and possibly whether it is still open

# The relation of x = [a, b) to y = [c, d).
_ALLEN: dict[str, Callable[[int, int, int, int], bool]] = {
    "before": lambda a, b, c, d: b < c,
    "after": lambda a, b, c, d: d < a,
    "meets": lambda a, b, c, d: b == c,
    "met by": lambda a, b, c, d: d == a,
    "overlaps": lambda a, b, c, d: a < c < b < d,
    "overlapped by": lambda a, b, c, d: c < a < d < b,
    "starts": lambda a, b, c, d: a == c and b < d,
    "started by": lambda a, b, c, d: a == c and d < b,
    "during": lambda a, b, c, d: c < a and b < d,
    "contains": lambda a, b, c, d: a < c and d < b,
    "finishes": lambda a, b, c, d: b == d and c < a,
    "finished by": lambda a, b, c, d: b == d and a < c,
    "equals": lambda a, b, c, d: a == c and b == d,
}
_LOOSER: dict[str, Callable[[int, int, int, int], bool]] = {
    "intersects": lambda a, b, c, d: a < d and c < b,
    "precedes": lambda a, b, c, d: b <= c,
    "covers": lambda a, b, c, d: a <= c and d <= b,
}


def _relation(holds: Callable[[int, int, int, int], bool]) -> Scalar:
    return plain(lambda x, y: holds(x[0], x[1], y[0], y[1]))


def _period(begin: int, end: int) -> Period:
    if begin >= end:
        raise ExpressionError(f"a period begins before it ends; {begin} is not before {end} (microseconds)")
    return begin, end


def _whole_units(length: Period | int, unit_us: int) -> int:
    us = length[1] - length[0] if isinstance(length, tuple) else length
    return us // unit_us if us >= 0 else -(-us // unit_us)


RELATIONS: dict[str, Scalar] = {name: _relation(holds) for name, holds in {**_ALLEN, **_LOOSER}.items()}

PERIODS: dict[str, Scalar] = {
    "begin": plain(lambda period: period[0]),
    "end": plain(lambda period: period[1]),
    "period": plain(_period),
    "whole_units": plain(_whole_units),
}
