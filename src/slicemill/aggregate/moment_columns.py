"""sum, avg, variances and deviations: exact sums of numbers and their squares, rounded once.

Where 128 bits hold the sums of doubles or whole numbers, `wide` has them. Decimals are whole numbers too, but
their averages and variances are left, like numbers that lie very far apart, to the reference's own arithmetic
on Python's integers. So is every result that is too great or too small for a plain double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.columns import (
    History,
    Mask,
    Places,
    Rows,
    Windows,
    bigints,
    doubles,
    known,
    sums_over,
    whole_numbers,
)
from slicemill.aggregate.exact import limbs as wide
from slicemill.aggregate.moments import (
    Moments,
    average,
    population_deviation,
    population_variance,
    sample_deviation,
    sample_variance,
    total,
)
from slicemill.aggregate.result_types import declared
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.vectors import arrow_type, numbers

FIGURES: dict[str, Callable[[Moments], object]] = {
    "sum": total,
    "avg": average,
    "variance": sample_variance,
    "var_samp": sample_variance,
    "var_pop": population_variance,
    "stddev": sample_deviation,
    "stddev_samp": sample_deviation,
    "stddev_pop": population_deviation,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Numbers as whole multiples of one unit, and what cannot be summed counted apart."""

    rows: Rows
    counts: Places
    finite: Mask
    odd: dict[str, Places]  # NaN and the infinities, by name, where there are any
    exponent: int
    bits: int  # of the greatest number


@dataclass(frozen=True, slots=True)
class Figure:
    """One of FIGURES for arguments of a type."""

    name: str
    argument: Type
    column: Type

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        prepared = self._prepared(rows)
        counts = sums_over(prepared.counts, windows)
        most = int(counts.max(initial=1))
        if prepared.bits + most.bit_length() > wide.SUM_BITS or most >= 2**32 or self._is_exact_only:
            return self._by_reference(prepared, windows, counts)
        sums = wide.prefix_sums(self._limbs(prepared))
        if self.name == "sum" and self.argument.kind is not Kind.DOUBLE:
            return self._whole_sums(sums, windows, counts)
        if self.name in ("sum", "avg"):
            divisors = np.maximum(counts, 1) if self.name == "avg" else np.ones(len(windows), np.int64)
            out = wide.quotients(sums, windows.starts, windows.ends, divisors, prepared.exponent)
            valid = counts > 0
        else:
            bias = 0 if self.name.endswith("_pop") else 1
            squares = wide.prefix_sums(self._squares(prepared))
            out = wide.variances(sums, squares, windows.starts, windows.ends, counts, bias, prepared.exponent)
            valid = counts > bias
        unsure = valid & np.isnan(out)
        if unsure.any():
            places = np.flatnonzero(unsure)
            few = Windows(windows.starts[places], windows.ends[places])
            out[places] = numbers(self._by_reference(prepared, few, counts[places]))
        if self.name.startswith("stddev"):
            # What the reference gave is a deviation already.
            out = np.where(unsure, out, np.sqrt(out))
        self._spoil(out, prepared, windows)
        return doubles(out, valid)

    def history(self, rows: Rows, partitions: Windows) -> History:
        prepared = self._prepared(rows)
        counts = sums_over(prepared.counts, partitions)
        full = np.flatnonzero(counts)
        if not len(full):
            return History(full)
        some = Windows(partitions.starts[full], partitions.ends[full])
        return History(some.starts, summaries=_objects(self._moments(prepared, some, counts[full])))

    @property
    def _degree(self) -> int:
        return 1 if self.name in ("sum", "avg") else 2

    @property
    def _is_exact_only(self) -> bool:
        return self.argument.kind is Kind.DECIMAL and self.name != "sum"

    @property
    def _scale(self) -> int:
        return (self.argument.scale or 0) if self.argument.kind is Kind.DECIMAL else 0

    # -- numbers as multiples of a unit ----------------------------------------------------------------

    def _prepared(self, rows: Rows) -> Prepared:
        array = rows.arguments[0]
        finite = known(array)
        counts = finite.astype(np.int64)
        summaries = _summaries(rows)
        odd: dict[str, Places] = {}
        exponent, bits = 0, 64
        for place, summary in summaries:
            finite[place], counts[place] = False, summary.count
        if self.argument.kind is Kind.DOUBLE:
            values = np.ascontiguousarray(numbers(array))
            named = (("nan", np.isnan(values)), ("inf", values == np.inf), ("-inf", values == -np.inf))
            for name, mask in named:
                copies = (mask & finite).astype(np.int64)
                for place, summary in summaries:
                    copies[place] = summary.nonfinite[name]
                if copies.any():
                    odd[name] = copies
            finite &= np.isfinite(values)
            low, high = wide.exponent_range(values, finite)
            exponent = min([low, *(_exponent(summary) for _, summary in summaries)])
            bits = high - exponent
        elif self.argument.kind is Kind.DECIMAL:
            bits = math.ceil((self.argument.precision or 38) * math.log2(10))
        for _, summary in summaries:
            for degree, value in enumerate(summary.sums, 1):
                # A sum may have cancelled out what the sum of squares still holds.
                bits = max(bits, -(-int(self._units(value, degree, exponent)).bit_length() // degree))
        return Prepared(rows, counts, finite, odd, exponent, bits)

    def _units(self, value: int | Fraction, degree: int, exponent: int) -> Fraction:
        """A sum of numbers, or of their squares, in multiples of the unit."""
        return Fraction(value) * Fraction(10) ** (self._scale * degree) / Fraction(2) ** (exponent * degree)

    def _limbs(self, prepared: Prepared) -> wide.Limbs:
        array = prepared.rows.arguments[0]
        if self.argument.kind is Kind.DOUBLE:
            values = np.ascontiguousarray(numbers(array))
            limbs = wide.limbs_of_doubles(values, prepared.finite, prepared.exponent)
        elif self.argument.kind is Kind.DECIMAL:
            limbs = _stored_limbs(array) * prepared.finite[:, None].astype(np.uint32)
        else:
            limbs = wide.limbs_of_integers(whole_numbers(array), prepared.finite)
        for place, summary in _summaries(prepared.rows):
            units = int(self._units(summary.sums[0], 1, prepared.exponent))
            limbs[place] = wide.limbs_of_int(units, wide.SUM_LIMBS)
        return limbs

    def _squares(self, prepared: Prepared) -> wide.Limbs:
        limbs = wide.squares(self._limbs(prepared))
        for place, summary in _summaries(prepared.rows):
            units = int(self._units(summary.sums[1], 2, prepared.exponent))
            limbs[place] = wide.limbs_of_int(units, wide.SQUARE_LIMBS)
        return limbs

    def _whole_sums(self, sums: wide.Limbs, windows: Windows, counts: Places) -> pa.Array:
        found = wide.differences(sums, windows.starts, windows.ends)
        valid = counts > 0
        if self.argument.kind is Kind.DECIMAL:
            # They fit: a column of sums is wide enough, but for the widest, which the reference checks.
            if self.column.precision == 38:
                self._check(wide.ints_of(found[valid]))
            buffer = pa.py_buffer(np.ascontiguousarray(found))
            nulls = pa.py_buffer(np.packbits(valid, bitorder="little"))
            return pa.Array.from_buffers(arrow_type(self.column), len(windows), [nulls, buffer])
        low = np.ascontiguousarray(found[:, :2]).view(np.int64)[:, 0]
        upper = np.ascontiguousarray(found[:, 2:]).view(np.int64)[:, 0]
        if ((low >> 63) != upper).any():
            self._check(wide.ints_of(found))
        return bigints(low, None if valid.all() else valid)

    def _check(self, sums: list[int]) -> None:
        """The reference's error for a sum that does not fit its column."""
        convert = declared(self.column)
        assert convert is not None
        for number in sums:
            convert(Decimal(number).scaleb(-self._scale) if self._scale else number)

    def _spoil(self, out: NDArray[np.float64], prepared: Prepared, windows: Windows) -> None:
        """Put NaN and infinities where the window has some."""
        if not prepared.odd:
            return
        none = np.zeros(len(windows), np.int64)
        nan, up, down = (
            sums_over(prepared.odd[name], windows) > 0 if name in prepared.odd else none > 0
            for name in ("nan", "inf", "-inf")
        )
        if self._degree == 2:
            out[nan | up | down] = np.nan
        else:
            out[up], out[down], out[nan | (up & down)] = np.inf, -np.inf, np.nan

    # -- by the reference's arithmetic -------------------------------------------------------------------

    def _by_reference(self, prepared: Prepared, windows: Windows, counts: Places) -> pa.Array:
        figure, convert = FIGURES[self.name], declared(self.column)
        values = [figure(moments) for moments in self._moments(prepared, windows, counts)]
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, arrow_type(self.column))

    def _moments(self, prepared: Prepared, windows: Windows, counts: Places) -> list[Moments]:
        """What the reference would hold in each window."""
        kind = {Kind.DOUBLE: float, Kind.DECIMAL: Decimal}.get(self.argument.kind, int)
        units = self._unit_values(prepared)
        sums = [list(accumulate((u[d] for u in units), initial=0)) for d in range(self._degree)]
        unit = Fraction(2) ** prepared.exponent / 10**self._scale
        odd = {name: sums_over(copies, windows).tolist() for name, copies in prepared.odd.items()}
        out = []
        bounds = zip(windows.starts.tolist(), windows.ends.tolist(), counts.tolist(), strict=True)
        for place, (start, end, count) in enumerate(bounds):
            moments = Moments(self._degree)
            moments.count = moments.kinds[kind] = count
            for degree, total_ in enumerate(sums):
                exact = (total_[end] - total_[start]) * unit ** (degree + 1)
                moments.sums[degree] = int(exact) if kind is int else exact
            for name, copies in odd.items():
                moments.nonfinite[name] = copies[place]
            out.append(moments)
        return out

    def _unit_values(self, prepared: Prepared) -> list[tuple[int, ...]]:
        array = prepared.rows.arguments[0]
        finite = prepared.finite.tolist()
        units: list[tuple[int, ...]] = []
        for value, counts in zip(array.to_pylist(), finite, strict=True):
            whole = int(self._units(Fraction(value), 1, prepared.exponent)) if counts else 0
            units.append((whole, whole * whole))
        for place, summary in _summaries(prepared.rows):
            units[place] = tuple(
                int(self._units(value, degree + 1, prepared.exponent))
                for degree, value in enumerate(summary.sums)
            )
        return units


def _summaries(rows: Rows) -> list[tuple[int, Moments]]:
    if rows.summaries is None:
        return []
    return [(place, found) for place, found in enumerate(rows.summaries) if found is not None]


def _objects(values: list[Moments]) -> NDArray[np.object_]:
    out = np.empty(len(values), np.object_)
    out[:] = values
    return out


def _exponent(moments: Moments) -> int:
    """A power of two of which the sum is a whole multiple, and whose square the sum of squares is one of."""
    powers = [1 - Fraction(value).denominator.bit_length() for value in moments.sums]
    return min(power // degree for degree, power in enumerate(powers, 1))


def _stored_limbs(array: pa.Array) -> wide.Limbs:
    """The digits of a decimal column as Arrow stores them."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), wide.SUM_LIMBS), np.uint32)
    limbs = np.frombuffer(buffer, np.uint32, 4 * len(array), 16 * array.offset)
    return limbs.reshape(len(array), wide.SUM_LIMBS).copy()
