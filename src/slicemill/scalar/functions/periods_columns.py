"""Periods of valid time over whole columns: an (n, 2) array of begins and ends (L7)."""

# ruff: noqa: ARG005 (every relation is a formula over a, b, c, d)

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slicemill.esl.types.schema import Kind
from slicemill.scalar.functions.arithmetic_columns import minus
from slicemill.scalar.kernel import Bound, Maker, Out, Strict, plain
from slicemill.scalar.vectors import Numbers

Formula = Callable[[Numbers, Numbers, Numbers, Numbers], Numbers]

# The relation of x = [a, b) to y = [c, d): Allen's thirteen, then three looser ones.
_RELATIONS: dict[str, Formula] = {
    "before": lambda a, b, c, d: b < c,
    "after": lambda a, b, c, d: d < a,
    "meets": lambda a, b, c, d: b == c,
    "met by": lambda a, b, c, d: d == a,
    "overlaps": lambda a, b, c, d: (a < c) & (c < b) & (b < d),
    "overlapped by": lambda a, b, c, d: (c < a) & (a < d) & (d < b),
    "starts": lambda a, b, c, d: (a == c) & (b < d),
    "started by": lambda a, b, c, d: (a == c) & (d < b),
    "during": lambda a, b, c, d: (c < a) & (b < d),
    "contains": lambda a, b, c, d: (a < c) & (d < b),
    "finishes": lambda a, b, c, d: (b == d) & (c < a),
    "finished by": lambda a, b, c, d: (b == d) & (a < c),
    "equals": lambda a, b, c, d: (a == c) & (b == d),
    "intersects": lambda a, b, c, d: (a < d) & (c < b),
    "precedes": lambda a, b, c, d: b <= c,
    "covers": lambda a, b, c, d: (a <= c) & (d <= b),
}


def _relation(formula: Formula) -> Maker:
    return plain(lambda x, y: formula(x[..., 0], x[..., 1], y[..., 0], y[..., 1]))


def _period(begin: Numbers, end: Numbers) -> Out:
    return Out(np.stack(np.broadcast_arrays(begin, end), axis=-1), unsure=begin >= end)


def _whole_units(bound: Bound) -> Strict:
    """Towards zero, so that a length and its negative have as many units."""

    def units(us: Numbers, unit: Numbers) -> Numbers:
        return us // unit + ((us < 0) & (us % unit != 0))

    def of_period(period: Numbers, unit: Numbers) -> Out:
        length = minus(period[..., 1], period[..., 0])
        return Out(units(length.data, unit), unsure=length.unsure)

    return of_period if bound.types[0].kind is Kind.PERIOD else units


RELATIONS: dict[str, Maker] = {name: _relation(formula) for name, formula in _RELATIONS.items()}

PERIODS: dict[str, Maker] = {
    "begin": plain(lambda period: period[..., 0]),
    "end": plain(lambda period: period[..., 1]),
    "period": plain(_period),
    "whole_units": _whole_units,
}
