"""Exact sums of values and of their squares, in the cheapest form that holds them.

| values | usual form | else |
|---|---|---|
| whole numbers, decimals | 64-bit whole numbers `s` | Python's whole numbers `x` |
| doubles | pairs of doubles `hi`, `lo` | Python's whole numbers `x`, in units of the smallest double |

Infinities and NaNs are counted apart (`nan`, `up`, `down`), where there are any: nothing gets rid of them in
a sum again. Columns say by their names which form they have; where forms meet, the wider one wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from slicemill.aggregate.exact import pairs as doubles
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Kind
from slicemill.operators.panes import groups
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.partials import Columns, Counts, Named, difference
from slicemill.operators.panes.spans import Spans
from slicemill.scalar.decimals import unscaled
from slicemill.scalar.values import unscaled as whole_of
from slicemill.scalar.vectors import numbers, validity

_SAFE = 2.0**62
_ROOT = 2.0**31
_SMALLEST = 1074  # the smallest double is 2 to the minus this
_BROKEN = ("nan", "up", "down")


class Sum(Named):
    """The sum of the values' first or second power."""

    def __init__(self, expr: Expr, degree: int = 1) -> None:
        super().__init__("sum" if degree == 1 else "squares", expr)
        self._degree = degree
        self._double = expr.type.kind is Kind.DOUBLE

    @property
    def units(self) -> int:
        """How many make one where sums are whole numbers."""
        if self._double:
            return 1 << (_SMALLEST * self._degree)
        return int(10 ** ((self.type.scale or 0) * self._degree))

    def lift(self, column: pa.Array, places: Ints) -> Columns:  # noqa: ARG002
        valid = validity(column)
        if self._double:
            return self._lift_doubles(numbers(column), valid)
        if self.type.kind is Kind.DECIMAL:
            values, wide = unscaled(column)
            if (wide if valid is None else wide & valid).any():
                scale = self.type.scale or 0
                digits = [0 if v is None else whole_of(v, scale) for v in column.to_pylist()]
                return {"x": _objects(digits) ** self._degree}
        else:
            values = numbers(column).astype(np.int64)
        values = values if valid is None else np.where(valid, values, 0)
        if self._degree == 1:
            return {"s": values}
        if np.abs(values.astype(np.float64)).max(initial=0.0) < _ROOT:
            return {"s": values * values}
        return {"x": values.astype(object) ** 2}

    def _lift_doubles(self, values: NDArray[np.float64], valid: NDArray[np.bool_] | None) -> Columns:
        values = values if valid is None else np.where(valid, values, 0.0)
        broken = {}
        finite = np.isfinite(values)
        if not finite.all():
            broken = {
                "nan": np.isnan(values).astype(np.int64),
                "up": (values == np.inf).astype(np.int64),
                "down": (values == -np.inf).astype(np.int64),
            }
            values = np.where(finite, values, 0.0)
        if self._degree == 1:
            return {"hi": values, "lo": np.zeros(len(values)), **broken}
        sizes = np.abs(values[values != 0])
        if sizes.max(initial=1.0) > 2.0**480 or sizes.min(initial=1.0) < 2.0**-480:
            return {"x": _objects([_units(v, _SMALLEST) ** 2 for v in values.tolist()]), **broken}
        hi, lo = doubles.squares(values)
        return {"hi": hi, "lo": lo, **broken}

    def reduce(self, columns: Columns, group: Ints, count: int) -> Columns:
        broken = {f: groups.sum_by_group(columns[f], group, count) for f in _BROKEN if f in columns}
        if "hi" in columns:
            hi, lo, exact = doubles.sum_by_group(columns["hi"], columns["lo"], group, count)
            if exact:
                return {"hi": hi, "lo": lo, **broken}
        elif "s" in columns and _fits(columns["s"]):
            return {"s": groups.sum_by_group(columns["s"], group, count)}
        wide = self.widened(columns)["x"]
        order = np.argsort(group, kind="stable")
        firsts = np.searchsorted(group[order], np.arange(count))
        return {"x": np.add.reduceat(wide[order], firsts) if count else wide[:0], **broken}

    def missing(self, count: int) -> Columns:
        if self._double:
            return {"hi": np.zeros(count), "lo": np.zeros(count)}
        return {"s": np.zeros(count, np.int64)}

    def joined(self, parts: Sequence[Columns]) -> Columns:
        if any("x" in part for part in parts):
            parts = [self.widened(part) for part in parts]
        fields = [f for f in ("s", "hi", "lo", "x") if f in parts[0]]
        joined = {f: np.concatenate([part[f] for part in parts]) for f in fields}
        for f in _BROKEN:
            if any(f in part for part in parts):
                zeros = [np.zeros(len(part[fields[0]]), np.int64) for part in parts]
                joined[f] = np.concatenate([p.get(f, z) for p, z in zip(parts, zeros, strict=True)])
        return joined

    def widened(self, columns: Columns) -> Columns:
        """The same sums as Python's whole numbers."""
        broken = {f: columns[f] for f in _BROKEN if f in columns}
        if "x" in columns:
            return columns
        if "s" in columns:
            return {"x": columns["s"].astype(object), **broken}
        bits = _SMALLEST * self._degree
        pairs = zip(columns["hi"].tolist(), columns["lo"].tolist(), strict=True)
        return {"x": _objects([_units(hi, bits) + _units(lo, bits) for hi, lo in pairs]), **broken}

    def index(self, columns: Columns, begin: Ints) -> Sums:
        broken = {f: Counts(columns[f]) for f in _BROKEN if f in columns}
        if "s" in columns and _fits(columns["s"]):
            before = np.concatenate(([0], np.cumsum(columns["s"])))
            return Sums(self, before=before, broken=broken)
        if "hi" in columns:
            hi, lo, exact = doubles.prefixes(columns["hi"], columns["lo"], begin)
            if exact and np.isfinite(hi).all():
                return Sums(self, high=hi, low=lo, broken=broken)
        wide = self.widened(columns)["x"]
        before = np.concatenate((_objects([0]), np.cumsum(wide))) if len(wide) else _objects([0])
        return Sums(self, before=before, broken=broken)


def _fits(values: Ints) -> bool:
    return float(np.abs(values.astype(np.float64)).sum()) < _SAFE


def _units(value: float, bits: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << (bits - denominator.bit_length() + 1)


def _objects(values: list[int]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


@dataclass(frozen=True)
class Sums:
    """Prefix sums: whole numbers over all entries, or pairs of doubles that start anew with each key."""

    partial: Sum
    before: NDArray[Any] | None = None
    high: NDArray[np.float64] | None = None
    low: NDArray[np.float64] | None = None
    broken: dict[str, Counts] = field(default_factory=dict)

    def over(self, spans: Spans) -> Totals:
        broken = {f: counts.over(spans) for f, counts in self.broken.items()}
        if self.before is not None:
            whole = self.before[spans.hi] - self.before[spans.lo] if self.before.dtype == object else None
            if whole is None:
                whole = difference(self.before, spans.lo, spans.hi)
            return Totals(self.partial.units, whole, broken=broken)
        assert self.high is not None and self.low is not None
        hi, lo, doubt = doubles.differences(self.high, self.low, spans.lo, spans.hi, spans.rank)
        if doubt.any():
            bits = self.partial.units.bit_length() - 1
            wide = []
            for a, b in zip((spans.lo + spans.rank).tolist(), (spans.hi + spans.rank).tolist(), strict=True):
                ends = [(self.high[b], 1), (self.low[b], 1), (self.high[a], -1), (self.low[a], -1)]
                wide.append(sum(sign * _units(float(v), bits) for v, sign in ends))
            return Totals(self.partial.units, _objects(wide), broken=broken)
        return Totals(self.partial.units, hi=hi, lo=lo, broken=broken)


@dataclass(frozen=True)
class Totals:
    """Exact sums of spans: whole numbers, of which `units` make one, or pairs of doubles."""

    units: int
    whole: NDArray[Any] | None = None
    hi: NDArray[np.float64] | None = None
    lo: NDArray[np.float64] | None = None
    broken: dict[str, Ints] = field(default_factory=dict)

    def wide(self) -> NDArray[Any]:
        """As Python's whole numbers."""
        if self.whole is not None:
            return self.whole.astype(object)
        assert self.hi is not None and self.lo is not None
        bits = self.units.bit_length() - 1
        pairs = zip(self.hi.tolist(), self.lo.tolist(), strict=True)
        return _objects([_units(hi, bits) + _units(lo, bits) for hi, lo in pairs])

    def doubles(self) -> NDArray[np.float64]:
        """Each sum, rounded once."""
        if self.hi is not None:
            return self._mended(self.hi)
        return self._mended(np.array([_ratio(v, self.units) for v in self.wide().tolist()], np.float64))

    def means(self, count: Ints) -> NDArray[np.float64]:
        """Each sum by its count, rounded once; that of nothing is arbitrary."""
        if self.hi is not None:
            assert self.lo is not None
            found, doubt = doubles.quotients(self.hi, self.lo, count)
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
        """With infinities and NaNs back in."""
        if not self.broken:
            return values
        up, down = self.broken["up"] > 0, self.broken["down"] > 0
        values = np.where(up, np.inf, np.where(down, -np.inf, values))
        return np.where((self.broken["nan"] > 0) | (up & down), np.nan, values)


@njit(cache=True)
def _whole_means(whole: Ints, count: Ints) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each sum by its count; flagged where the sum is no double."""
    found, doubt = np.empty(len(whole)), np.empty(len(whole), np.bool_)
    for i in range(len(whole)):
        found[i] = whole[i] / max(count[i], 1)
        doubt[i] = whole[i] > 2**53 or whole[i] < -(2**53)
    return found, doubt


def _ratio(whole: int, divisor: int) -> float:
    """Rounded once: Python divides whole numbers of any size so."""
    try:
        return whole / divisor
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def variances(first: Totals, second: Totals, count: Ints, bias: int) -> NDArray[np.float64]:
    """Squared deviations from the mean over the count less `bias`, rounded once; arbitrary for too few."""
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
    broken = sum((second.broken[f] for f in second.broken), np.zeros(len(count), np.int64))
    return np.where(broken > 0, np.nan, found)
