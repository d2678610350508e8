"""Exact sums of values and squares, in the cheapest exact representation.

| values | usual form | fallback |
|---|---|---|
| integers, decimals | 64-bit integers `s` | Python integers `x` |
| doubles | pairs of doubles `hi`, `lo` | Python integers `x`, in units of the smallest double |

Infinities and NaNs are counted separately (`nan`, `up`, `down`) if there are any, because they cannot be
subtracted from a sum. Column names show the representation. If parts have different ones, the wider one is
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.exact import pairs as doubles
from slicemill.aggregate.exact.totals import SMALLEST, Totals, double_units, integers
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
_NONFINITE = ("nan", "up", "down")


class Sum(Named):
    """Sum of the values (`degree` 1) or of their squares (`degree` 2)."""

    def __init__(self, expr: Expr, degree: int = 1) -> None:
        super().__init__("sum" if degree == 1 else "squares", expr)
        self._degree = degree
        self._double = expr.type.kind is Kind.DOUBLE

    @property
    def units(self) -> int:
        """Return the scale of integer sums: this many units make 1."""
        if self._double:
            return 1 << (SMALLEST * self._degree)
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
                return {"x": integers(digits) ** self._degree}
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
        nonfinite = {}
        finite = np.isfinite(values)
        if not finite.all():
            nonfinite = {
                "nan": np.isnan(values).astype(np.int64),
                "up": (values == np.inf).astype(np.int64),
                "down": (values == -np.inf).astype(np.int64),
            }
            values = np.where(finite, values, 0.0)
        if self._degree == 1:
            return {"hi": values, "lo": np.zeros(len(values)), **nonfinite}
        sizes = np.abs(values[values != 0])
        if sizes.max(initial=1.0) > 2.0**480 or sizes.min(initial=1.0) < 2.0**-480:
            return {"x": integers([double_units(v, SMALLEST) ** 2 for v in values.tolist()]), **nonfinite}
        hi, lo = doubles.squares(values)
        return {"hi": hi, "lo": lo, **nonfinite}

    def reduce(self, columns: Columns, group: Ints, count: int) -> Columns:
        nonfinite = {f: groups.sum_by_group(columns[f], group, count) for f in _NONFINITE if f in columns}
        if "hi" in columns:
            hi, lo, exact = doubles.sum_by_group(columns["hi"], columns["lo"], group, count)
            if exact:
                return {"hi": hi, "lo": lo, **nonfinite}
        elif "s" in columns and _fits(columns["s"]):
            return {"s": groups.sum_by_group(columns["s"], group, count)}
        wide = self.widened(columns)["x"]
        order = np.argsort(group, kind="stable")
        firsts = np.searchsorted(group[order], np.arange(count))
        return {"x": np.add.reduceat(wide[order], firsts) if count else wide[:0], **nonfinite}

    def missing(self, count: int) -> Columns:
        if self._double:
            return {"hi": np.zeros(count), "lo": np.zeros(count)}
        return {"s": np.zeros(count, np.int64)}

    def joined(self, parts: Sequence[Columns]) -> Columns:
        if any("x" in part for part in parts):
            parts = [self.widened(part) for part in parts]
        fields = [f for f in ("s", "hi", "lo", "x") if f in parts[0]]
        joined = {f: np.concatenate([part[f] for part in parts]) for f in fields}
        for f in _NONFINITE:
            if any(f in part for part in parts):
                zeros = [np.zeros(len(part[fields[0]]), np.int64) for part in parts]
                joined[f] = np.concatenate([p.get(f, z) for p, z in zip(parts, zeros, strict=True)])
        return joined

    def widened(self, columns: Columns) -> Columns:
        """Return the same sums as Python integers."""
        nonfinite = {f: columns[f] for f in _NONFINITE if f in columns}
        if "x" in columns:
            return columns
        if "s" in columns:
            return {"x": columns["s"].astype(object), **nonfinite}
        bits = SMALLEST * self._degree
        pairs = zip(columns["hi"].tolist(), columns["lo"].tolist(), strict=True)
        return {
            "x": integers([double_units(hi, bits) + double_units(lo, bits) for hi, lo in pairs]),
            **nonfinite,
        }

    def index(self, columns: Columns, begin: Ints) -> Sums:
        nonfinite = {f: Counts(columns[f]) for f in _NONFINITE if f in columns}
        if "s" in columns and _fits(columns["s"]):
            before = np.concatenate(([0], np.cumsum(columns["s"])))
            return Sums(self, before=before, nonfinite=nonfinite)
        if "hi" in columns:
            hi, lo, exact = doubles.prefixes(columns["hi"], columns["lo"], begin)
            if exact and np.isfinite(hi).all():
                return Sums(self, high=hi, low=lo, nonfinite=nonfinite)
        wide = self.widened(columns)["x"]
        before = np.concatenate((integers([0]), np.cumsum(wide))) if len(wide) else integers([0])
        return Sums(self, before=before, nonfinite=nonfinite)


def _fits(values: Ints) -> bool:
    return float(np.abs(values.astype(np.float64)).sum()) < _SAFE


@dataclass(frozen=True)
class Sums:
    """Prefix sums: integers over all entries, or pairs of doubles per key."""

    partial: Sum
    before: NDArray[Any] | None = None
    high: NDArray[np.float64] | None = None
    low: NDArray[np.float64] | None = None
    nonfinite: dict[str, Counts] = field(default_factory=dict)

    def over(self, spans: Spans) -> Totals:
        nonfinite = {f: counts.over(spans) for f, counts in self.nonfinite.items()}
        if self.before is not None:
            whole = self.before[spans.hi] - self.before[spans.lo] if self.before.dtype == object else None
            if whole is None:
                whole = difference(self.before, spans.lo, spans.hi)
            return Totals(self.partial.units, whole, nonfinite=nonfinite)
        assert self.high is not None and self.low is not None
        hi, lo, doubt = doubles.differences(self.high, self.low, spans.lo, spans.hi, spans.rank)
        if doubt.any():
            bits = self.partial.units.bit_length() - 1
            wide = []
            for a, b in zip((spans.lo + spans.rank).tolist(), (spans.hi + spans.rank).tolist(), strict=True):
                ends = [(self.high[b], 1), (self.low[b], 1), (self.high[a], -1), (self.low[a], -1)]
                wide.append(sum(sign * double_units(float(v), bits) for v, sign in ends))
            return Totals(self.partial.units, integers(wide), nonfinite=nonfinite)
        return Totals(self.partial.units, hi=hi, lo=lo, nonfinite=nonfinite)
