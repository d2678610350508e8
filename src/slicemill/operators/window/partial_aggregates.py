"""Partial aggregates of window aggregates over panes, for example the sum and count of an argument.

An entry has the partial aggregates of the tuples of one pane and key. `lift` computes the columns of a
partial aggregate for single rows. `reduce` merges rows or entries by group. `index` builds an index over the
entries of a query, for example prefix sums. The index returns the aggregate of any range of entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.aggregates import exact as doubles
from slicemill.aggregates.exact import SMALLEST, Totals, double_units, integers
from slicemill.catalog.expressions import Expr
from slicemill.functions.decimals import digits_of
from slicemill.functions.render import render
from slicemill.functions.values import decimal_digits as whole_of
from slicemill.functions.vectors import arrow_type, boolean_array, fixed_width, numbers, validity
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.window import spans as groups
from slicemill.operators.window.spans import Spans, least_of_group, sum_by_group
from slicemill.types import Kind, Type

Columns: TypeAlias = Mapping[str, Any]  # NumPy arrays, or Arrow arrays of types that NumPy lacks


class PartialAggregate(Protocol):
    """Partial aggregate of one argument, which entries of panes store as columns.

    `name` is equal in all plans with the same partial aggregate, and is the prefix of its stored columns.
    """

    name: str
    expr: Expr

    def lift(self, column: pa.Array, indices: Int64s) -> Columns:
        """Compute the columns of the partial aggregate for single rows, from their argument values.

        `indices` are the positions of the rows in the log.
        """

    def reduce(self, columns: Columns, group: Int64s, groups: int) -> Columns: ...

    def missing(self, count: int) -> Columns:
        """Return neutral values for stored entries that lack this partial aggregate."""

    def joined(self, parts: Sequence[Columns]) -> Columns: ...

    def index(self, columns: Columns, begin: Int64s) -> Any: ...


def take_values(array: Any, indices: Int64s) -> Any:
    return array.take(pa.array(indices)) if isinstance(array, pa.Array) else array[indices]


class NamedPartial:
    def __init__(self, what: str, expr: Expr) -> None:
        self.expr = expr
        self.type = expr.type
        self.name = f"{what} of {render(expr)} as {expr.type}"

    def joined(self, parts: Sequence[Columns]) -> Columns:
        found: dict[str, Any] = {}
        for name, first in parts[0].items():
            concatenate: Any = pa.concat_arrays if isinstance(first, pa.Array) else np.concatenate
            found[name] = concatenate([part[name] for part in parts])
        return found


class NonNullCount(NamedPartial):
    """Partial aggregate: number of values that are not NULL."""

    def __init__(self, expr: Expr) -> None:
        super().__init__("known", expr)

    def lift(self, column: pa.Array, indices: Int64s) -> Columns:  # noqa: ARG002
        valid = validity(column)
        return {"n": np.ones(len(column), np.int8) if valid is None else valid.view(np.int8)}

    def reduce(self, columns: Columns, group: Int64s, groups: int) -> Columns:
        return {"n": sum_by_group(columns["n"], group, groups)}

    def missing(self, count: int) -> Columns:
        return {"n": np.zeros(count, np.int64)}

    def index(self, columns: Columns, begin: Int64s) -> CountIndex:  # noqa: ARG002
        return CountIndex(columns["n"])


class CountIndex:
    """Prefix sums of counts, which return the total of any range of entries."""

    def __init__(self, counts: Int64s) -> None:
        self._before = np.concatenate(([0], np.cumsum(counts)))

    def over(self, spans: Spans) -> Int64s:
        return difference(self._before, spans.lo, spans.hi)


@kernel
def difference(before: Int64s, lo: Int32s, hi: Int32s) -> Int64s:
    out = np.empty(len(lo), np.int64)
    for i in range(len(lo)):
        out[i] = before[hi[i]] - before[lo[i]]
    return out


class EdgeValue(NamedPartial):
    """Partial aggregate: first or last value in an entry (pane and key). The value may be NULL."""

    def __init__(self, expr: Expr, last: bool) -> None:
        super().__init__("last" if last else "first", expr)
        self.last = last

    def lift(self, column: pa.Array, indices: Int64s) -> Columns:
        return {"value": column, "place": -indices if self.last else indices}

    def reduce(self, columns: Columns, group: Int64s, groups: int) -> Columns:
        chosen = least_of_group(columns["place"], group, groups)
        return {"value": take_values(columns["value"], chosen), "place": columns["place"][chosen]}

    def missing(self, count: int) -> Columns:
        return {"value": pa.nulls(count, arrow_type(self.type)), "place": np.zeros(count, np.int64)}

    def index(self, columns: Columns, begin: Int64s) -> EdgeValueIndex:  # noqa: ARG002
        return EdgeValueIndex(columns["value"], self.last)


class EdgeValueIndex:
    def __init__(self, values: pa.Array, last: bool) -> None:
        self._values = values
        self._last = last

    def over(self, spans: Spans) -> pa.Array:
        chosen = (spans.hi - 1 if self._last else spans.lo).astype(np.int64)
        empty = spans.hi == spans.lo
        return self._values.take(pa.array(chosen, mask=empty) if empty.any() else pa.array(chosen))


class ValueList(NamedPartial):
    """Values of single tuples, for aggregates that read each value of a window.

    Each entry has a single tuple and is never merged.
    """

    def __init__(self, expr: Expr) -> None:
        super().__init__("values", expr)

    def lift(self, column: pa.Array, indices: Int64s) -> Columns:  # noqa: ARG002
        return {"value": column}

    def reduce(self, columns: Columns, group: Int64s, groups: int) -> Columns:  # noqa: ARG002
        raise AssertionError("single tuples stay single")

    def missing(self, count: int) -> Columns:
        return {"value": pa.nulls(count, arrow_type(self.type))}

    def index(self, columns: Columns, begin: Int64s) -> pa.Array:  # noqa: ARG002
        return columns["value"]


# Exact sums of values and squares.
#
# | values | usual columns | fallback |
# |---|---|---|
# | integers, decimals | 64-bit integers `s` | Python integers `x` |
# | doubles | pairs of doubles `hi`, `lo` | Python integers `x`, in units of the smallest double |
#
# Infinities and NaNs are counted in separate columns (`nan`, `up`, `down`), because they cannot be subtracted
# from a sum. If sets of entries have different columns, all sums are converted to Python integers.


_SAFE = 2.0**62
_ROOT = 2.0**31
_NONFINITE = ("nan", "up", "down")


class PartialSum(NamedPartial):
    """Partial aggregate: exact sum of the values (`degree` 1) or of their squares (`degree` 2)."""

    def __init__(self, expr: Expr, degree: int = 1) -> None:
        super().__init__("sum" if degree == 1 else "squares", expr)
        self._degree = degree
        self._double = expr.type.kind is Kind.DOUBLE

    @property
    def units(self) -> int:
        """Return the factor by which values are multiplied, so that their sum is an integer."""
        if self._double:
            return 1 << (SMALLEST * self._degree)
        return int(10 ** ((self.type.scale or 0) * self._degree))

    def lift(self, column: pa.Array, indices: Int64s) -> Columns:  # noqa: ARG002
        valid = validity(column)
        if self._double:
            return self._lift_doubles(numbers(column), valid)
        if self.type.kind is Kind.DECIMAL:
            values, wide = digits_of(column)
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
        hi, lo = doubles.pair_squares(values)
        return {"hi": hi, "lo": lo, **nonfinite}

    def reduce(self, columns: Columns, group: Int64s, count: int) -> Columns:
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
        """Convert stored sums to Python integers, which have arbitrary precision."""
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

    def index(self, columns: Columns, begin: Int64s) -> SumIndex:
        nonfinite = {f: CountIndex(columns[f]) for f in _NONFINITE if f in columns}
        if "s" in columns and _fits(columns["s"]):
            before = np.concatenate(([0], np.cumsum(columns["s"])))
            return SumIndex(self, before=before, nonfinite=nonfinite)
        if "hi" in columns:
            hi, lo, exact = doubles.prefixes(columns["hi"], columns["lo"], begin)
            if exact and np.isfinite(hi).all():
                return SumIndex(self, high=hi, low=lo, nonfinite=nonfinite)
        wide = self.widened(columns)["x"]
        before = np.concatenate((integers([0]), np.cumsum(wide))) if len(wide) else integers([0])
        return SumIndex(self, before=before, nonfinite=nonfinite)


def _fits(values: Int64s) -> bool:
    return float(np.abs(values.astype(np.float64)).sum()) < _SAFE


@dataclass(frozen=True)
class SumIndex:
    """Prefix sums of partial sums: integers over all entries, or pairs of doubles for each key."""

    partial: PartialSum
    before: NDArray[Any] | None = None
    high: NDArray[np.float64] | None = None
    low: NDArray[np.float64] | None = None
    nonfinite: dict[str, CountIndex] = field(default_factory=dict)

    def over(self, spans: Spans) -> Totals:
        nonfinite = {f: counts.over(spans) for f, counts in self.nonfinite.items()}
        if self.before is not None:
            whole = self.before[spans.hi] - self.before[spans.lo] if self.before.dtype == object else None
            if whole is None:
                whole = difference(self.before, spans.lo, spans.hi)
            return Totals(self.partial.units, whole, nonfinite=nonfinite)
        assert self.high is not None and self.low is not None
        hi, lo, doubt = doubles.pair_differences(self.high, self.low, spans.lo, spans.hi, spans.rank)
        if doubt.any():
            bits = self.partial.units.bit_length() - 1
            wide = []
            for a, b in zip((spans.lo + spans.rank).tolist(), (spans.hi + spans.rank).tolist(), strict=True):
                ends = [(self.high[b], 1), (self.low[b], 1), (self.high[a], -1), (self.low[a], -1)]
                wide.append(sum(sign * double_units(float(v), bits) for v, sign in ends))
            return Totals(self.partial.units, integers(wide), nonfinite=nonfinite)
        return Totals(self.partial.units, hi=hi, lo=lo, nonfinite=nonfinite)


# Minimum and maximum of any range of entries, by sparse tables (C17).
#
# Of equal values the first value is returned. This matters only for 0.0 and -0.0. If a column has -0.0, each
# entry stores its first zero in the column `zero`: twice the position in the log, plus 1 for -0.0.


_FLIP = np.int64(2**63 - 1)
_NOTHING = 2**63 - 1
_NEGATIVE_ZERO = np.int64(-(2**63))  # integer with the bits of -0.0
_RANKED = (Kind.VARCHAR, Kind.BINARY, Kind.DECIMAL)
_PLAIN = (
    Kind.BOOLEAN,
    Kind.INT,
    Kind.BIGINT,
    Kind.DOUBLE,
    Kind.TIMESTAMP,
    Kind.DATE,
    Kind.INTERVAL,
)


def sortable(type_: Type) -> bool:
    """Return True if panes support minimum and maximum of values of a type."""
    return type_.kind in _PLAIN or type_.kind in _RANKED


class PartialExtreme(NamedPartial):
    """Partial aggregate: minimum or maximum of the values. NaN is the greatest value."""

    def __init__(self, expr: Expr, greatest: bool) -> None:
        super().__init__("greatest" if greatest else "least", expr)
        self._greatest = greatest
        self._rank_of_zero = ~0 if greatest else 0

    def lift(self, column: pa.Array, indices: Int64s) -> Columns:
        if self.type.kind in _RANKED:
            return {"value": column}
        values, valid = numbers(column), validity(column)
        rank = _rank(values)
        rank = ~rank if self._greatest else rank
        found = {"rank": rank if valid is None else np.where(valid, rank, _NOTHING)}
        if self.type.kind is Kind.DOUBLE:
            negative = values.view(np.int64) == _NEGATIVE_ZERO
            if negative.any():
                zeros = found["rank"] == self._rank_of_zero
                found["zero"] = np.where(zeros, 2 * indices + negative, _NOTHING)
        return found

    def reduce(self, columns: Columns, group: Int64s, groups: int) -> Columns:
        if "rank" in columns:
            return {field: c[least_of_group(c, group, groups)] for field, c in columns.items()}
        ranks, _ = self._ranks(columns["value"])
        return {"value": take_values(columns["value"], least_of_group(ranks, group, groups))}

    def missing(self, count: int) -> Columns:
        if self.type.kind in _RANKED:
            return {"value": pa.nulls(count, arrow_type(self.type))}
        return {"rank": np.full(count, _NOTHING)}

    def joined(self, parts: Sequence[Columns]) -> Columns:
        if any("zero" in part for part in parts):
            parts = self._with_zeros(parts)
        return super().joined(parts)

    def _with_zeros(self, parts: Sequence[Columns]) -> list[Columns]:
        """Add the column `zero`, which has the position of the first zero, to all sets of entries (`parts`).

        The parts are consecutive in the log. The zeros of a part without -0.0 get positions between the
        positions of the neighbouring parts.
        """
        made: list[Columns] = []
        last = -2
        for part in parts:
            between = np.where(part["rank"] == self._rank_of_zero, last + 2 - last % 2, _NOTHING)
            zero = part.get("zero", between)
            last = int(zero.max(initial=last, where=zero < _NOTHING))
            made.append({**part, "zero": zero})
        return made

    def index(self, columns: Columns, begin: Int64s) -> ExtremeIndex:
        values = None
        if "rank" in columns:
            ranks = columns["rank"]
        else:
            ranks, values = self._ranks(columns["value"])
        longest = int(np.diff(begin).max(initial=1))
        zeros = _levels(columns["zero"], longest) if "zero" in columns else None
        return ExtremeIndex(_levels(ranks, longest), values, zeros, self)

    def _ranks(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        """Return the rank of each value among the distinct values, and the distinct values in rank order."""
        encoded = column.dictionary_encode()
        order = pc.array_sort_indices(
            encoded.dictionary, order="descending" if self._greatest else "ascending"
        )
        indices = np.empty(len(order), np.int64)
        indices[order.to_numpy()] = np.arange(len(order))
        valid = validity(encoded.indices)
        codes = numbers(encoded.indices)
        values = encoded.dictionary.take(order)
        if not len(order):
            return np.full(len(column), _NOTHING), values
        if valid is None:
            return indices[codes], values
        return np.where(valid, indices[np.where(valid, codes, 0)], _NOTHING), values

    def restore_zero_signs(self, ranks: Int64s, zeros: Int64s) -> Int64s:
        """Give results that are -0.0 a rank of their own, next to the rank of 0.0.

        Ranks do not distinguish the two zeros. The last bit of `zeros` tells whether a result is -0.0.
        """
        return np.where((ranks == self._rank_of_zero) & (zeros % 2 > 0), ~self._rank_of_zero, ranks)

    def shown(self, ranks: Int64s, values: pa.Array | None, known: NDArray[np.bool_]) -> pa.Array:
        if values is not None:
            indices = np.where(known, ranks, 0)
            return values.take(pa.array(indices, mask=~known))
        plain = ~ranks if self._greatest else ranks
        if self.type.kind is Kind.DOUBLE:
            plain = np.where(plain >= 0, plain, plain ^ _FLIP).view(np.float64)
        target = arrow_type(self.type)
        valid = None if known.all() else known
        if self.type.kind is Kind.BOOLEAN:
            return pc.if_else(boolean_array(known), boolean_array(plain != 0), None)
        width = np.dtype(f"i{target.bit_width // 8}") if self.type.kind is not Kind.DOUBLE else plain.dtype
        return fixed_width(plain.astype(width), valid, target)


def _rank(values: NDArray[Any]) -> Int64s:
    """Map numbers to integers in the same order, so that kernels compare only integers.

    The bits of doubles sort like the doubles. For negative doubles, all bits except the sign are inverted
    first.
    """
    if values.dtype != np.float64:
        return values.astype(np.int64)
    one_zero = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return np.where(one_zero >= 0, one_zero, one_zero ^ _FLIP)


class ExtremeIndex:
    """Sparse table of minimum ranks, which returns the minimum of any range of entries.

    Row j has the minimum of each range of 2^j consecutive entries. Two such ranges cover any range (C17).
    """

    def __init__(
        self, levels: Int64s, values: pa.Array | None, zeros: Int64s | None, partial: PartialExtreme
    ) -> None:
        self._levels = levels
        self._values = values
        self._zeros = zeros
        self._partial = partial

    def over(self, spans: Spans, known: NDArray[np.bool_]) -> pa.Array:
        ranks = _least(self._levels, spans.lo, spans.hi)
        if self._zeros is not None:
            ranks = self._partial.restore_zero_signs(ranks, _least(self._zeros, spans.lo, spans.hi))
        return self._partial.shown(ranks, self._values, known)


def _levels(ranks: Int64s, longest: int) -> Int64s:
    """Build the sparse table of minimum ranks, for ranges of up to `longest` entries."""
    levels = [ranks]
    while 2 ** len(levels) <= longest:
        last, reach = levels[-1], 2 ** (len(levels) - 1)
        level = last.copy()
        level[: len(last) - reach] = np.minimum(last[: len(last) - reach], last[reach:])
        levels.append(level)
    return np.stack(levels)


@kernel
def _least(levels: NDArray[np.int64], lo: Int32s, hi: Int32s) -> Int64s:
    out = np.empty(len(lo), np.int64)
    for i in range(len(lo)):
        length = hi[i] - lo[i]
        if length == 0:
            out[i] = _NOTHING
            continue
        level = 0
        while length >> (level + 1):
            level += 1
        out[i] = min(levels[level, lo[i]], levels[level, hi[i] - (1 << level)])
    return out
