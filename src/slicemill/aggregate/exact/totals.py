"""Exact sums of spans; their doubles, means and variances, each rounded once.

A sum is a number of units, as a 64-bit or a Python integer, or a pair of doubles. Infinities and NaNs are
counted separately, since subtraction cannot remove them from a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.aggregate.exact import pairs
from slicemill.aggregate.exact.pairs import Ints
from slicemill.machine_code.kernel import kernel

SMALLEST = 1074  # the smallest double is 2 ** -SMALLEST


def double_units(value: float, bits: int) -> int:
    """Return a double as a multiple of 2**-bits."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (bits - denominator.bit_length() + 1)


def integers(values: list[int]) -> NDArray[Any]:
    """Return an array of Python integers."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


@dataclass(frozen=True)
class Totals:
    """Exact sums of spans.

    A sum is an integer multiple of 1 / `units`, or a pair of doubles.
    """

    units: int
    whole: NDArray[Any] | None = None
    hi: NDArray[np.float64] | None = None
    lo: NDArray[np.float64] | None = None
    nonfinite: dict[str, Ints] = field(default_factory=dict)

    def wide(self) -> NDArray[Any]:
        """Return the sums as Python integers."""
        if self.whole is not None:
            return self.whole.astype(object)
        assert self.hi is not None and self.lo is not None
        bits = self.units.bit_length() - 1
        pairs = zip(self.hi.tolist(), self.lo.tolist(), strict=True)
        return integers([double_units(hi, bits) + double_units(lo, bits) for hi, lo in pairs])

    def doubles(self) -> NDArray[np.float64]:
        """Return each sum, rounded once."""
        if self.hi is not None:
            return self._mended(self.hi)
        return self._mended(np.array([_ratio(v, self.units) for v in self.wide().tolist()], np.float64))

    def means(self, count: Ints) -> NDArray[np.float64]:
        """Return each sum over its count, rounded once; arbitrary for empty spans."""
        if self.hi is not None:
            assert self.lo is not None
            found, doubt = pairs.quotients(self.hi, self.lo, count)
        elif self.whole is not None and self.whole.dtype != object and self.units == 1:
            found, doubt = _whole_means(self.whole, count)
        else:
            found, doubt = np.zeros(len(count)), np.ones(len(count), np.bool_)
        places = np.flatnonzero(doubt & (count > 0))
        if len(places):
            wide = self.picked(places).wide().tolist()
            values = [_ratio(v, self.units * n) for v, n in zip(wide, count[places].tolist(), strict=True)]
            found[places] = values
        return self._mended(found)

    def picked(self, places: Ints) -> Totals:
        whole, hi, lo = (None if a is None else a[places] for a in (self.whole, self.hi, self.lo))
        return Totals(self.units, whole, hi, lo)

    def _mended(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Restore infinities and NaNs."""
        if not self.nonfinite:
            return values
        nan, up, down = (self.nonfinite[name] > 0 for name in ("nan", "up", "down"))
        return with_nonfinite(values, nan, up, down)


def with_nonfinite(
    sums: NDArray[np.float64], nan: NDArray[np.bool_], up: NDArray[np.bool_], down: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return sums of finite numbers, corrected by the spans' NaNs and infinities."""
    sums = np.where(up, np.inf, np.where(down, -np.inf, sums))
    return np.where(nan | (up & down), np.nan, sums)


@kernel
def _whole_means(whole: Ints, count: Ints) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return sum / count, flagged if the sum is no double."""
    found, doubt = np.empty(len(whole)), np.empty(len(whole), np.bool_)
    for i in range(len(whole)):
        found[i] = whole[i] / max(count[i], 1)
        doubt[i] = whole[i] > 2**53 or whole[i] < -(2**53)
    return found, doubt


def _ratio(whole: int, divisor: int) -> float:
    """Divide Python integers, which rounds once."""
    try:
        return whole / divisor
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def variances(first: Totals, second: Totals, count: Ints, bias: int) -> NDArray[np.float64]:
    """Return squared deviations from the mean over the count less `bias`.

    Each is rounded once, and arbitrary if the count is too small.
    """
    n = np.maximum(count, bias + 1)
    found = np.zeros(len(count))
    doubt = np.ones(len(count), np.bool_)
    a, b = first.whole, second.whole
    if a is not None and b is not None and a.dtype != object and b.dtype != object and first.units == 1:
        sizes = np.maximum(n * b.astype(np.float64), a.astype(np.float64) ** 2)
        doubt = sizes >= 2.0**53
        safe = ~doubt
        found[safe] = (n[safe] * b[safe] - a[safe] ** 2) / (n[safe] * (n[safe] - bias)).astype(np.float64)
    places = np.flatnonzero(doubt & (count > bias))
    if len(places):
        ones, twos = first.picked(places).wide().tolist(), second.picked(places).wide().tolist()
        found[places] = [
            _ratio(m * two - one * one, second.units * m * (m - bias))
            for m, one, two in zip(n[places].tolist(), ones, twos, strict=True)
        ]
    nonfinite = sum((second.nonfinite[f] for f in second.nonfinite), np.zeros(len(count), np.int64))
    return np.where(nonfinite > 0, np.nan, found)
