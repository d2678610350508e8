"""Aggregates sum, avg, variance, skewness and kurtosis, from exact sums of powers (M32).

Moments are the count of numbers and the sums of their powers. Each result is rounded once. If a window added
and subtracted floats, rounding errors would accumulate, and the result would depend on how the window is
divided into panes (M35). In the row-by-row implementation, sums are rational numbers. In the columnar
implementation, numbers are integer multiples of a unit, which is a power of two for doubles and a power of
ten for decimals. Their sums are multi-precision integers of 32-bit limbs (`aggregates.exact`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates import exact as limbs
from slicemill.aggregates.columns import (
    History,
    Rows,
    Windows,
    bigints,
    doubles,
    sums_over,
    valid_mask,
    whole_numbers,
)
from slicemill.aggregates.definition import result_converter
from slicemill.aggregates.exact import with_nonfinite
from slicemill.aggregates.frames import Args
from slicemill.aggregates.statistic import Number
from slicemill.codec.registry import register
from slicemill.functions.values import EXACT
from slicemill.functions.vectors import arrow_type, numbers, validity
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.types import MAX_DECIMAL_PRECISION, Kind, Type


def _nearest_float(exact: int | Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class Moments:
    """Count of numbers, and exact sums of their powers up to a degree.

    Moments can be added and subtracted. Infinities and NaNs are counted separately, because subtraction
    cannot remove them from a sum.
    """

    __slots__ = ("count", "kinds", "nonfinite", "sums")

    def __init__(self, degree: int) -> None:
        self.count = 0
        self.sums: list[int | Fraction] = [0] * degree
        self.kinds: Counter[type] = Counter()
        # The keys are names such as "nan", because NaN does not equal itself.
        self.nonfinite: Counter[str] = Counter()

    def include(self, number: Number, copies: int) -> None:
        self.count += copies
        self.kinds[type(number)] += copies
        if not math.isfinite(number):
            self.nonfinite[str(abs(float(number)) if math.isnan(number) else float(number))] += copies
            return
        exact = number if isinstance(number, int) else Fraction(number)
        for degree in range(len(self.sums)):
            self.sums[degree] += copies * exact ** (degree + 1)

    def merge(self, other: Moments, copies: int) -> None:
        self.count += copies * other.count
        for degree, value in enumerate(other.sums):
            self.sums[degree] += copies * value
        for kind, count in other.kinds.items():
            self.kinds[kind] += copies * count
        for number, count in other.nonfinite.items():
            self.nonfinite[number] += copies * count

    def to_number(self, exact: int | Fraction) -> Number:
        """Convert an exact result to the type of the aggregated numbers.

        A fraction becomes a float, unless the numbers are decimals.
        """
        if +self.nonfinite:
            return sum(map(float, self.nonfinite.elements()))
        if self.kinds[Decimal] and not self.kinds[float]:
            return EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
        return int(exact) if exact.denominator == 1 and not self.kinds[float] else _nearest_float(exact)


_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "decimal": Decimal}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def _moments_plain(moments: Moments) -> dict[str, object]:
    kinds = {_NAMES[kind]: count for kind, count in moments.kinds.items()}
    return {"count": moments.count, "sums": moments.sums, "kinds": kinds, "odd": dict(moments.nonfinite)}


def _moments_of(plain: dict[str, Any]) -> Moments:
    made = Moments(0)
    made.count, made.sums = plain["count"], plain["sums"]
    made.kinds = Counter({_KINDS[name]: count for name, count in plain["kinds"].items()})
    made.nonfinite = Counter(plain["odd"])
    return made


register("moments", 1, Moments, _moments_plain, _moments_of)


@dataclass(frozen=True, slots=True)
class MomentStatistic:
    """Row-by-row statistic that is computed from sums of powers (moments), such as a variance.

    `figure` computes the value. `add` and `remove` take a number, or the moments of a pane.
    """

    moments: Moments
    figure: Callable[[Moments], object]

    def add(self, args: Args) -> None:
        self._change(args[0], 1)

    def remove(self, args: Args) -> None:
        self._change(args[0], -1)

    def value(self) -> object:
        return self.figure(self.moments)

    def state(self) -> object:
        return self.moments

    def restore(self, state: Any) -> None:
        object.__setattr__(self, "moments", state)

    def _change(self, arg: object, copies: int) -> None:
        if isinstance(arg, Moments):
            self.moments.merge(arg, copies)
        elif arg is not None:
            self.moments.include(cast(Number, arg), copies)


def total(moments: Moments) -> object:
    return moments.to_number(moments.sums[0]) if moments.count else None


def average(moments: Moments) -> object:
    if not moments.count:
        return None
    mean = moments.to_number(Fraction(moments.sums[0]) / moments.count)
    return _nearest_float(mean) if isinstance(mean, int) else mean


def sample_variance(moments: Moments) -> float | None:
    return _variance(moments, 1)


def sample_deviation(moments: Moments) -> float | None:
    return _root(sample_variance(moments))


def population_variance(moments: Moments) -> float | None:
    return _variance(moments, 0)


def population_deviation(moments: Moments) -> float | None:
    return _root(population_variance(moments))


def _variance(moments: Moments, bias: int) -> float | None:
    """Return the variance: the sum of squared deviations from the mean, over (count - bias)."""
    n = moments.count
    if n <= bias:
        return None
    if +moments.nonfinite:
        return math.nan
    first, second = moments.sums
    return _nearest_float(Fraction(n * second - first * first) / (n * (n - bias)))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def skewness(moments: Moments) -> float | None:
    """Return the population skewness, or None if the variance is 0, as in Spark.

    With n numbers and a_k = n^(k-1) * sum((x - mean)^k), the skewness is a_3 / a_2^1.5.
    """
    if not moments.count:
        return None
    if +moments.nonfinite:
        return math.nan
    n = moments.count
    s1, s2, s3 = moments.sums
    a2 = n * s2 - s1 * s1
    if not a2:
        return None
    a3 = n * n * s3 - 3 * n * s1 * s2 + 2 * s1 * s1 * s1
    root = _nearest_root(a3 * a3, a2 * a2 * a2)
    return root if a3 >= 0 else -root


def kurtosis(moments: Moments) -> float | None:
    """Return the excess kurtosis of the population, or None if the variance is 0.

    The excess kurtosis is a_4 / a_2^2 - 3, with a_k as in `skewness`.
    """
    if not moments.count:
        return None
    if +moments.nonfinite:
        return math.nan
    n = moments.count
    s1, s2, s3, s4 = moments.sums
    a2 = n * s2 - s1 * s1
    if not a2:
        return None
    square = s1 * s1
    a4 = n * n * (n * s4 - 4 * s1 * s3) + 6 * n * square * s2 - 3 * square * square
    return _nearest_quotient(a4 - 3 * a2 * a2, a2 * a2)


def _nearest_quotient(dividend: int | Fraction, divisor: int | Fraction) -> float:
    """Divide two exact numbers, rounded once to a float.

    This is faster than dividing Fractions, which are reduced to lowest terms.
    """
    return (dividend.numerator * divisor.denominator) / (dividend.denominator * divisor.numerator)


def _nearest_root(dividend: int | Fraction, divisor: int | Fraction) -> float:
    """Return the square root of the quotient of two exact numbers, rounded once to a float."""
    over, under = dividend.numerator * divisor.denominator, dividend.denominator * divisor.numerator
    # The integer root has 64 bits or more. An extra last bit is set if the root is inexact.
    shift = max(0, (under.bit_length() - over.bit_length() + 130) // 2)
    whole, rest = divmod(over << 2 * shift, under)
    root = math.isqrt(whole)
    return ((root << 1) | (rest != 0 or root * root != whole)) / (1 << shift + 1)


# -- columnar implementation -------------------------------------------------------------------------------


# Names of the values that are counted separately
ODD = ("nan", "inf", "-inf")

# Divisors of multi-precision integers must be less than this number.
MANY = 2**32

# Greatest exponent of a power of ten that fits into 32 bits
_MOST_DIGITS = 9

# Highest 32-bit word of 10**38, the limit of decimals
_LARGE_WORD = 10**38 >> 96

STATISTICS: dict[str, Callable[[Moments], object]] = {
    "sum": total,
    "avg": average,
    "variance": sample_variance,
    "var_samp": sample_variance,
    "var_pop": population_variance,
    "stddev": sample_deviation,
    "stddev_samp": sample_deviation,
    "stddev_pop": population_deviation,
    "mean": average,
    "skewness": skewness,
    "kurtosis": kurtosis,
}
MEANS = ("avg", "mean")
DEGREES = dict.fromkeys(STATISTICS, 2) | dict.fromkeys(("sum", *MEANS), 1) | {"skewness": 3, "kurtosis": 4}
LIMB_DEGREE = 2  # highest power whose sums are multi-precision integers of limbs, not Python integers


@dataclass(frozen=True, slots=True)
class PreparedNumbers:
    """Column of numbers to aggregate, prepared as integer multiples of a common unit.

    The unit is 2**exponent, or for decimals a power of ten. NaN and infinities are counted separately.
    """

    rows: Rows
    counts: Int64s
    finite: Bools
    odd: dict[str, Int64s]  # counts of NaN, inf and -inf in each row, by name, if there are any
    exponent: int
    bits: int  # number of bits of the largest number, in units


@dataclass(frozen=True, slots=True)
class ColumnMoments:
    """Columnar implementation of sum, avg, variance, … (see STATISTICS), for an argument type."""

    name: str
    argument: Type
    column: Type

    def answers(self, rows: Rows, windows: Windows) -> pa.Array:
        if (small := self._of_small_integers(rows, windows)) is not None:
            return small
        prepared = self.prepare(rows)
        counts = sums_over(prepared.counts, windows)
        most = int(counts.max(initial=1))
        if most >= MANY or not self.in_limbs:
            return self._by_rows(prepared, windows, counts)
        numbers_ = self.limbs_of(prepared, limbs.limbs_for(prepared.bits, most))
        squares = limbs.prefix_sums(self.squares_of(prepared, numbers_)) if self.degree == 2 else None
        odd = {name: sums_over(copies, windows) > 0 for name, copies in prepared.odd.items()}
        return self.figures(limbs.prefix_sums(numbers_), squares, windows, counts, prepared.exponent, odd)

    def figures(
        self,
        sums: limbs.Limbs,
        squares: limbs.Limbs | None,
        windows: Windows,
        counts: Int64s,
        exponent: int,
        odd: Mapping[str, Bools],
    ) -> pa.Array:
        """Return each window's result from prefix sums of the numbers and of their squares.

        The sums are in units of 2**exponent. `odd` has masks of the windows with NaN, inf and -inf. Counts
        are less than 2**32.
        """
        if self.name == "sum" and self.argument.kind is not Kind.DOUBLE:
            return self._whole_sums(sums, windows, counts)
        if self.name in MEANS and self.argument.kind is Kind.DECIMAL:
            factor = 10 ** ((self.column.scale or 0) - self._scale)
            means = limbs.decimal_means(sums, windows.starts, windows.ends, counts, factor)
            return _decimals(means, counts > 0, self.column)
        if self.degree == 1:
            divisors = np.maximum(counts, 1) if self.name in MEANS else np.ones(len(windows), np.int64)
            out = limbs.quotients(sums, windows.starts, windows.ends, divisors, exponent)
            valid = counts > 0
        else:
            assert squares is not None, "variances need sums of squares"
            bias = 0 if self.name.endswith("_pop") else 1
            # Squares of decimals have the unit 10 ** (-2 * scale).
            # The division by the power of ten is split into a division by 5 ** (2 * scale), and a
            # change of the exponent.
            divisor, exponent = 5 ** (2 * self._scale), exponent - self._scale
            out = limbs.variances(
                sums, squares, windows.starts, windows.ends, counts, bias, divisor, exponent
            )
            valid = counts > bias
            if self.name.startswith("stddev"):
                out = np.sqrt(out)
        return doubles(self._with_nonfinite(out, odd), valid)

    def means_of(self, sums: NDArray[Any], counts: Int64s) -> pa.Array:
        """Return the means of decimals, given their sums as integers in units of the last decimal digit."""
        if sums.dtype == object or not self.in_limbs or counts.max(initial=0) >= MANY:
            return self.by_moments(self.moments(counts, [sums.tolist()], {}, 0))
        # `figures` expects prefix sums. Each sum becomes the difference to an additional row of zeros.
        numbers_ = limbs.limbs_of_integers(sums, np.ones(len(sums), np.bool_))
        totals = np.concatenate([np.zeros((1, limbs.WHOLE), np.uint32), numbers_])
        ends = np.arange(1, len(sums) + 1)
        return self.figures(totals, None, Windows(np.zeros_like(ends), ends), counts, 0, {})

    @property
    def in_limbs(self) -> bool:
        """Return True if multi-precision integers of limbs suffice, without Python integers."""
        if self.degree > LIMB_DEGREE:
            return False
        if self.argument.kind is not Kind.DECIMAL or self.name == "sum":
            return True
        if self.name not in MEANS:
            return bool(5 ** (2 * self._scale) < MANY)
        more = (self.column.scale or 0) - self._scale
        whole, wanted = (
            (type_.precision or 0) - (type_.scale or 0) for type_ in (self.column, self.argument)
        )
        return whole >= wanted and 0 <= more <= _MOST_DIGITS

    def _of_small_integers(self, rows: Rows, windows: Windows) -> pa.Array | None:
        """Return sums or means of integers that are small enough for exact doubles, else None."""
        if self.argument.kind not in (Kind.INT, Kind.BIGINT) or self.degree > 1 or rows.summaries is not None:
            return None
        valid = validity(rows.arguments[0])
        values = whole_numbers(rows.arguments[0])
        values = values if valid is None else np.where(valid, values, 0)
        greatest = max(-int(values.min(initial=0)), int(values.max(initial=0)))
        if greatest * len(values) >= 2**53:
            return None
        counts = windows.ends - windows.starts
        if valid is not None:
            counts = sums_over(valid.astype(np.int64), windows)
        sums = sums_over(values, windows)
        if self.name == "sum":
            return bigints(sums, None if counts.all() else counts > 0)
        return doubles(sums / np.maximum(counts, 1), counts > 0)

    def history(self, rows: Rows, partitions: Windows) -> History:
        prepared = self.prepare(rows)
        counts = sums_over(prepared.counts, partitions)
        full = np.flatnonzero(counts)
        if not len(full):
            return History(full)
        some = Windows(partitions.starts[full], partitions.ends[full])
        return History(some.starts, summaries=_objects(self._moments(prepared, some, counts[full])))

    @property
    def degree(self) -> int:
        return DEGREES[self.name]

    @property
    def _scale(self) -> int:
        return (self.argument.scale or 0) if self.argument.kind is Kind.DECIMAL else 0

    # -- numbers as integer multiples of a unit ----------------------------------------------------------

    def prepare(self, rows: Rows) -> PreparedNumbers:
        array = rows.arguments[0]
        finite = valid_mask(array)
        counts = finite.astype(np.int64)
        summaries = _summaries(rows)
        odd: dict[str, Int64s] = {}
        exponent, bits = 0, 64
        for index, summary in summaries:
            finite[index], counts[index] = False, summary.count
        if self.argument.kind is Kind.DOUBLE:
            values = np.ascontiguousarray(numbers(array))
            masks = (np.isnan(values), values == np.inf, values == -np.inf)
            for name, mask in zip(ODD, masks, strict=True):
                copies = (mask & finite).astype(np.int64)
                for index, summary in summaries:
                    copies[index] = summary.nonfinite[name]
                if copies.any():
                    odd[name] = copies
            finite &= np.isfinite(values)
            low, high = limbs.exponent_range(values, finite)
            exponent = min([low, *(_exponent(summary) for _, summary in summaries)])
            bits = high - exponent
        elif self.argument.kind is Kind.DECIMAL:
            bits = math.ceil((self.argument.precision or 38) * math.log2(10))
        for _, summary in summaries:
            for degree, value in enumerate(summary.sums, 1):
                # Positive and negative numbers cancel in a sum, so the sum of squares counts too.
                bits = max(bits, -(-int(self._units(value, degree, exponent)).bit_length() // degree))
        return PreparedNumbers(rows, counts, finite, odd, exponent, bits)

    def _units(self, value: int | Fraction, degree: int, exponent: int) -> int | Fraction:
        """Convert a sum of powers (x^degree) to a multiple of the unit of numbers, to the power `degree`."""
        if not exponent and not self._scale:
            return value
        return Fraction(value) * Fraction(10) ** (self._scale * degree) / Fraction(2) ** (exponent * degree)

    def limbs_of(self, prepared: PreparedNumbers, size: int) -> limbs.Limbs:
        """Convert the numbers, in multiples of the unit, to integers of at least `size` 32-bit limbs."""
        array = prepared.rows.arguments[0]
        if self.argument.kind is Kind.DOUBLE:
            values = np.ascontiguousarray(numbers(array))
            integers = limbs.limbs_of_doubles(values, prepared.finite, prepared.exponent, size)
        elif self.argument.kind is Kind.DECIMAL:
            integers = _unscaled_limbs(array) * prepared.finite[:, None].astype(np.uint32)
            integers = limbs.widen(integers, max(size, limbs.WHOLE))
        else:
            integers = limbs.limbs_of_integers(whole_numbers(array), prepared.finite)
        for index, summary in _summaries(prepared.rows):
            units = int(self._units(summary.sums[0], 1, prepared.exponent))
            integers[index] = limbs.limbs_of_int(units, integers.shape[1])
        return integers

    def squares_of(self, prepared: PreparedNumbers, numbers_: limbs.Limbs) -> limbs.Limbs:
        squares = limbs.squares(numbers_)
        for index, summary in _summaries(prepared.rows):
            units = int(self._units(summary.sums[1], 2, prepared.exponent))
            squares[index] = limbs.limbs_of_int(units, squares.shape[1])
        return squares

    def _whole_sums(self, sums: limbs.Limbs, windows: Windows, counts: Int64s) -> pa.Array:
        found = limbs.differences(sums, windows.starts, windows.ends)
        valid = counts > 0
        if self.argument.kind is Kind.DECIMAL:
            # Only sums in a DECIMAL column of 38 digits can overflow, so only large sums are checked.
            if self.column.precision == MAX_DECIMAL_PRECISION:
                upper = found[:, limbs.WHOLE - 1].view(np.int32).astype(np.int64)
                large = np.abs(upper) >= _LARGE_WORD
                large |= (found[:, limbs.WHOLE :].view(np.int32) != (upper >> 63)[:, None]).any(axis=1)
                self._check(limbs.ints_of(found[large & valid]))
            return _decimals(found[:, : limbs.WHOLE], valid, self.column)
        low = np.ascontiguousarray(found[:, :2]).view(np.int64)[:, 0]
        upper = np.ascontiguousarray(found[:, 2:]).view(np.int64)[:, 0]
        if ((low >> 63) != upper).any():
            self._check(limbs.ints_of(found))
        return bigints(low, None if valid.all() else valid)

    def _check(self, sums: list[int]) -> None:
        """Raise an error if a sum does not fit into the type of the result column."""
        convert = result_converter(self.column)
        assert convert is not None
        for number in sums:
            convert(Decimal(number).scaleb(-self._scale) if self._scale else number)

    def _with_nonfinite(self, results: NDArray[np.float64], odd: Mapping[str, Bools]) -> NDArray[np.float64]:
        """Replace the results of windows that contain NaN or infinities."""
        if not odd:
            return results
        none = np.zeros(len(results), np.bool_)
        nan, up, down = (odd.get(name, none) for name in ODD)
        if self.degree == 2:
            return np.where(nan | up | down, np.nan, results)
        return with_nonfinite(results, nan, up, down)

    # -- results computed by the row-by-row implementation, with Python numbers ------------------------------

    def _by_rows(self, prepared: PreparedNumbers, windows: Windows, counts: Int64s) -> pa.Array:
        # Skewness and kurtosis do not depend on the unit, and integers are faster than Fractions.
        in_units = self.degree > LIMB_DEGREE
        return self.by_moments(self._moments(prepared, windows, counts, in_units=in_units))

    def by_moments(self, all_moments: Sequence[Moments]) -> pa.Array:
        """Return the result column, computed from each window's moments as in the row-by-row aggregate."""
        figure, convert = STATISTICS[self.name], result_converter(self.column)
        values = [figure(moments) for moments in all_moments]
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, arrow_type(self.column))

    def _moments(
        self, prepared: PreparedNumbers, windows: Windows, counts: Int64s, *, in_units: bool = False
    ) -> list[Moments]:
        """Return the moments (count and sums of powers) of each window, as Python numbers.

        With `in_units`, the sums are not converted from multiples of the unit.
        """
        sums = self._totals(prepared, windows, counts)
        odd = {name: sums_over(copies, windows) for name, copies in prepared.odd.items()}
        return self.moments(counts, sums, odd, prepared.exponent, in_units=in_units)

    def moments(
        self,
        counts: Int64s,
        sums: Sequence[Sequence[int]],
        odd: Mapping[str, Int64s],
        exponent: int,
        *,
        in_units: bool = False,
    ) -> list[Moments]:
        """Return the moments of each window as Python numbers, from sums of powers in units of 2**exponent.

        `sums` has one list per power. With `in_units`, the sums are not converted from multiples of the unit.
        """
        kind = {Kind.DOUBLE: float, Kind.DECIMAL: Decimal}.get(self.argument.kind, int)
        unit = Fraction(2) ** exponent / 10**self._scale
        units = [unit ** (degree + 1) for degree in range(len(sums))]
        copies = {name: counted.tolist() for name, counted in odd.items()}
        out = []
        for index, count in enumerate(counts.tolist()):
            moments = Moments(self.degree)
            moments.count = moments.kinds[kind] = count
            for degree, totals in enumerate(sums):
                # Sums of integers need no conversion, because their unit is 1.
                plain = in_units or kind is int
                moments.sums[degree] = totals[index] if plain else totals[index] * units[degree]
            for name, counted in copies.items():
                moments.nonfinite[name] = counted[index]
            out.append(moments)
        return out

    def _totals(self, prepared: PreparedNumbers, windows: Windows, counts: Int64s) -> list[list[int]]:
        """Return, for each power, the sum over each window as a Python integer, in multiples of the unit."""
        most = int(counts.max(initial=1))
        if most >= MANY or self.degree > LIMB_DEGREE:
            units = self._unit_values(prepared, most)
            sums = [list(accumulate((u[d] for u in units), initial=0)) for d in range(self.degree)]
            bounds = list(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True))
            return [[total_[end] - total_[start] for start, end in bounds] for total_ in sums]
        numbers_ = self.limbs_of(prepared, limbs.limbs_for(prepared.bits, most))
        powers = [numbers_, self.squares_of(prepared, numbers_)] if self.degree == 2 else [numbers_]
        return [
            limbs.ints_of(limbs.differences(limbs.prefix_sums(power), windows.starts, windows.ends))
            for power in powers
        ]

    def _unit_values(self, prepared: PreparedNumbers, most: int) -> list[tuple[int, ...]]:
        """Return the powers x, x^2, … of each number as Python integers, in multiples of the unit."""
        numbers_ = limbs.ints_of(self.limbs_of(prepared, limbs.limbs_for(prepared.bits, most)))
        units = [tuple(whole**degree for degree in range(1, self.degree + 1)) for whole in numbers_]
        for index, summary in _summaries(prepared.rows):
            units[index] = tuple(
                int(self._units(value, degree + 1, prepared.exponent))
                for degree, value in enumerate(summary.sums)
            )
        return units


def _summaries(rows: Rows) -> list[tuple[int, Moments]]:
    if rows.summaries is None:
        return []
    return [(index, summary) for index, summary in enumerate(rows.summaries) if summary is not None]


def _objects(values: list[Moments]) -> NDArray[np.object_]:
    out = np.empty(len(values), np.object_)
    out[:] = values
    return out


def _exponent(moments: Moments) -> int:
    """Return the exponent e of a unit 2**e in which all sums of powers are integers.

    The n-th power of the unit divides the sum of n-th powers.
    """
    powers = [1 - Fraction(value).denominator.bit_length() for value in moments.sums]
    return min(power // degree for degree, power in enumerate(powers, 1))


def _decimals(unscaled: limbs.Limbs, valid: Bools, type_: Type) -> pa.Array:
    """Convert 128-bit unscaled integers to a decimal column."""
    buffer = pa.py_buffer(np.ascontiguousarray(unscaled))
    nulls = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow_type(type_), len(unscaled), [nulls, buffer])


def _unscaled_limbs(array: pa.Array) -> limbs.Limbs:
    """Return the unscaled 128-bit integers of a decimal column as rows of 32-bit limbs."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), limbs.WHOLE), np.uint32)
    stored = np.frombuffer(buffer, np.uint32, limbs.WHOLE * len(array), 16 * array.offset)
    return stored.reshape(len(array), limbs.WHOLE).copy()
