"""Minima and maxima of any span of entries, by sparse tables (C17).

Of equal values the first one is returned. The choice matters only for 0.0 and -0.0. If a column contains
-0.0, entries also store their first zero (`zero`): twice its position in the log, plus 1 if it is -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Kind, Type
from slicemill.machine_code.kernel import kernel
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.groups import least_of_group
from slicemill.operators.panes.partials import Columns, Named, taken
from slicemill.operators.panes.spans import Places, Spans
from slicemill.scalar.vectors import arrow_type, boolean_array, fixed_width, numbers, validity

_FLIP = np.int64(2**63 - 1)
_NOTHING = 2**63 - 1
_NEGATIVE_ZERO = np.int64(-(2**63))  # the bits of -0.0
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
    """Return True if panes support minima and maxima of this type."""
    return type_.kind in _PLAIN or type_.kind in _RANKED


class Extreme(Named):
    """Minimum or maximum. NaN is the greatest value."""

    def __init__(self, expr: Expr, greatest: bool) -> None:
        super().__init__("greatest" if greatest else "least", expr)
        self._greatest = greatest
        self._rank_of_zero = ~0 if greatest else 0

    def lift(self, column: pa.Array, places: Ints) -> Columns:
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
                found["zero"] = np.where(zeros, 2 * places + negative, _NOTHING)
        return found

    def reduce(self, columns: Columns, group: Ints, groups: int) -> Columns:
        if "rank" in columns:
            return {field: c[least_of_group(c, group, groups)] for field, c in columns.items()}
        ranks, _ = self._ranks(columns["value"])
        return {"value": taken(columns["value"], least_of_group(ranks, group, groups))}

    def missing(self, count: int) -> Columns:
        if self.type.kind in _RANKED:
            return {"value": pa.nulls(count, arrow_type(self.type))}
        return {"rank": np.full(count, _NOTHING)}

    def joined(self, parts: Sequence[Columns]) -> Columns:
        if any("zero" in part for part in parts):
            parts = self._with_zeros(parts)
        return super().joined(parts)

    def _with_zeros(self, parts: Sequence[Columns]) -> list[Columns]:
        """Add the `zero` column to all parts.

        Parts are consecutive in the log. Zeros of a part without -0.0 get positions between those of its
        neighbours.
        """
        made: list[Columns] = []
        last = -2
        for part in parts:
            between = np.where(part["rank"] == self._rank_of_zero, last + 2 - last % 2, _NOTHING)
            zero = part.get("zero", between)
            last = int(zero.max(initial=last, where=zero < _NOTHING))
            made.append({**part, "zero": zero})
        return made

    def index(self, columns: Columns, begin: Ints) -> Extremes:
        values = None
        if "rank" in columns:
            ranks = columns["rank"]
        else:
            ranks, values = self._ranks(columns["value"])
        longest = int(np.diff(begin).max(initial=1))
        zeros = _levels(columns["zero"], longest) if "zero" in columns else None
        return Extremes(_levels(ranks, longest), values, zeros, self)

    def _ranks(self, column: pa.Array) -> tuple[Ints, pa.Array]:
        """Return each value's rank among the distinct values, and these values."""
        encoded = column.dictionary_encode()
        order = pc.array_sort_indices(
            encoded.dictionary, order="descending" if self._greatest else "ascending"
        )
        places = np.empty(len(order), np.int64)
        places[order.to_numpy()] = np.arange(len(order))
        valid = validity(encoded.indices)
        codes = numbers(encoded.indices)
        values = encoded.dictionary.take(order)
        if not len(order):
            return np.full(len(column), _NOTHING), values
        if valid is None:
            return places[codes], values
        return np.where(valid, places[np.where(valid, codes, 0)], _NOTHING), values

    def signed(self, ranks: Ints, zeros: Ints) -> Ints:
        """Replace ranks of -0.0 by the unused rank next to 0.0."""
        return np.where((ranks == self._rank_of_zero) & (zeros % 2 > 0), ~self._rank_of_zero, ranks)

    def shown(self, ranks: Ints, values: pa.Array | None, known: NDArray[np.bool_]) -> pa.Array:
        if values is not None:
            places = np.where(known, ranks, 0)
            return values.take(pa.array(places, mask=~known))
        plain = ~ranks if self._greatest else ranks
        if self.type.kind is Kind.DOUBLE:
            plain = np.where(plain >= 0, plain, plain ^ _FLIP).view(np.float64)
        target = arrow_type(self.type)
        valid = None if known.all() else known
        if self.type.kind is Kind.BOOLEAN:
            return pc.if_else(boolean_array(known), boolean_array(plain != 0), None)
        width = np.dtype(f"i{target.bit_width // 8}") if self.type.kind is not Kind.DOUBLE else plain.dtype
        return fixed_width(plain.astype(width), valid, target)


def _rank(values: NDArray[Any]) -> Ints:
    """Return integers that sort like the values.

    The bits of doubles sort like the doubles, except that those of negative numbers have to be inverted.
    """
    if values.dtype != np.float64:
        return values.astype(np.int64)
    one_zero = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return np.where(one_zero >= 0, one_zero, one_zero ^ _FLIP)


class Extremes:
    """Sparse table: row j has the minimum rank of each 2^j consecutive entries.

    Two of them cover any span (C17).
    """

    def __init__(self, levels: Ints, values: pa.Array | None, zeros: Ints | None, partial: Extreme) -> None:
        self._levels = levels
        self._values = values
        self._zeros = zeros
        self._partial = partial

    def over(self, spans: Spans, known: NDArray[np.bool_]) -> pa.Array:
        ranks = _least(self._levels, spans.lo, spans.hi)
        if self._zeros is not None:
            ranks = self._partial.signed(ranks, _least(self._zeros, spans.lo, spans.hi))
        return self._partial.shown(ranks, self._values, known)


def _levels(ranks: Ints, longest: int) -> Ints:
    """Build the sparse table, up to the length of the longest possible span."""
    levels = [ranks]
    while 2 ** len(levels) <= longest:
        last, reach = levels[-1], 2 ** (len(levels) - 1)
        level = last.copy()
        level[: len(last) - reach] = np.minimum(last[: len(last) - reach], last[reach:])
        levels.append(level)
    return np.stack(levels)


@kernel
def _least(levels: NDArray[np.int64], lo: Places, hi: Places) -> Ints:
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
