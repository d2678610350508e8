"""Exact sums of numbers, in columns of multi-precision integers, independent of the order of additions.

A multi-precision integer is a row of 32-bit words (limbs), lowest first, in two's complement. All rows of a
column have as many limbs as the sums need (`limbs_for`). Doubles are converted to integer multiples of one
power of two, whose exponent is `exponent`. Sums may wrap round: a difference of prefix sums is correct if the
difference itself fits. `round_ratio` converts an exact number to a double. A span is a range of rows whose
sum is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slicemill.kernels.arrays import Bools, Floats, Int32s, Int64s
from slicemill.kernels.kernel import kernel

Limbs: TypeAlias = NDArray[np.uint32]

WHOLE = 4  # number of 32-bit limbs for decimals, and for sums of 64-bit integers

# Number of extra limbs in the buffer of `round_ratio`
SPARE = 5

_LIMB = np.uint64(32)
_MASK = np.uint64(0xFFFF_FFFF)
_ONE = np.uint64(1)
_FRACTION = np.int64((1 << 52) - 1)
_IMPLICIT = np.int64(1 << 52)
_SMALLEST = -1074  # power of two of the smallest double


def limbs_for(bits: int, count: int) -> int:
    """Return the number of 32-bit limbs, an even number, for sums of `count` numbers of `bits` bits."""
    return max(WHOLE, 2 * -(-(bits + count.bit_length() + 1) // 64))


@kernel
def exponent_range(values: Floats, counted: Any) -> tuple[int, int]:
    """Return the power of two of the lowest bit of all doubles, and the power above the highest bit.

    Only doubles in the mask `counted` are considered. If all of them are 0, return (0, 0).
    """
    bits = values.view(np.int64)
    low, high = 1 << 20, -(1 << 20)
    for i in range(len(bits)):
        if counted[i] and bits[i] << np.int64(1) != 0:
            power = max(np.int64(1), (bits[i] >> np.int64(52)) & np.int64(0x7FF)) - 1075
            low = min(low, power)
            high = max(high, power + 53)
    return (low, high) if low <= high else (0, 0)


@kernel
def limbs_of_doubles(values: Floats, counted: Any, lowest: int, limbs: int) -> Limbs:
    """Convert doubles to multi-precision integers, as multiples of 2**lowest.

    Doubles that are not in the mask `counted` become 0.
    """
    bits = values.view(np.int64)
    out = np.zeros((len(bits), limbs), np.uint32)
    for i in range(len(bits)):
        if not counted[i]:
            continue
        power = (bits[i] >> np.int64(52)) & np.int64(0x7FF)
        digits = bits[i] & _FRACTION
        if power == 0:
            power = np.int64(1)
        else:
            digits |= _IMPLICIT
        if digits == 0:
            continue
        shift = power - 1075 - lowest
        limb, within = shift >> 5, np.uint64(shift & 31)
        carried = np.uint64(digits)
        low = carried & _MASK
        high = carried >> _LIMB
        # After a shift by less than one limb, 53 bits occupy at most three limbs.
        parts = (
            (low << within) & _MASK,
            ((low << within) >> _LIMB) | ((high << within) & _MASK),
            (high << within) >> _LIMB,
        )
        for index in range(3):
            if limb + index < limbs:
                out[i, limb + index] = parts[index]
        if bits[i] < 0:
            negate(out[i])
    return out


@kernel
def limbs_of_integers(values: Int64s, counted: Any) -> Limbs:
    out = np.zeros((len(values), WHOLE), np.uint32)
    for i in range(len(values)):
        if counted[i]:
            value = np.uint64(values[i])
            out[i, 0] = value & _MASK
            out[i, 1] = value >> _LIMB
            if values[i] < 0:
                out[i, 2] = out[i, 3] = _MASK
    return out


@kernel
def negate(number: Limbs) -> None:
    carry = _ONE
    for index in range(len(number)):
        carry += np.uint64(number[index]) ^ _MASK
        number[index] = carry & _MASK
        carry >>= _LIMB


@kernel
def _square(number: Limbs, out: Limbs) -> None:
    """Square a multi-precision integer. `number` is replaced by its absolute value."""
    if number[-1] >> np.uint32(31):
        negate(number)
    out[:] = 0
    for i in range(len(number)):
        carry = np.uint64(0)
        for j in range(len(number)):
            carry += np.uint64(out[i + j]) + np.uint64(number[i]) * np.uint64(number[j])
            out[i + j] = carry & _MASK
            carry >>= _LIMB
        out[i + len(number)] = carry


@kernel
def squares(numbers: Limbs) -> Limbs:
    limbs = numbers.shape[1]
    out = np.empty((len(numbers), 2 * limbs), np.uint32)
    number = np.empty(limbs, np.uint32)
    for i in range(len(numbers)):
        number[:] = numbers[i]
        _square(number, out[i])
    return out


@kernel
def _add_up(numbers: Any, out: Any) -> None:
    rows, words = numbers.shape
    for i in range(rows):
        carry = np.uint64(0)
        for index in range(words):
            total = out[i, index] + numbers[i, index]
            carried = total + carry
            # An unsigned sum that is less than one of its operands has wrapped round.
            carry = np.uint64((total < numbers[i, index]) | (carried < total))
            out[i + 1, index] = carried


def prefix_sums(numbers: Limbs) -> Limbs:
    """Return the prefix sums of multi-precision integers: row i has the sum of the numbers before row i."""
    rows, limbs = numbers.shape
    out = np.zeros((rows + 1, limbs), np.uint32)
    # Two limbs are added at a time, because they are one 64-bit word in memory.
    _add_up(numbers.view(np.uint64), out.view(np.uint64))
    return out


@kernel
def _subtract(left: Limbs, right: Limbs, out: Limbs) -> None:
    borrow = np.uint64(0)
    for index in range(len(left)):
        borrow = np.uint64(left[index]) - np.uint64(right[index]) - borrow
        out[index] = borrow & _MASK
        borrow = (borrow >> _LIMB) & _ONE


@kernel
def differences(sums: Limbs, starts: Int64s, ends: Int64s) -> Limbs:
    """Return the sum over each range of rows, as the difference of two prefix sums."""
    out = np.empty((len(starts), sums.shape[1]), np.uint32)
    for i in range(len(starts)):
        _subtract(sums[ends[i]], sums[starts[i]], out[i])
    return out


@kernel
def round_ratio(number: Limbs, first: int, second: int, third: int, exponent: int, buffer: Limbs) -> float:
    """Compute number / (first * second * third) * 2**exponent, rounded once to a double.

    The result is the nearest double; ties go to even. The number must not be negative. Divisors have up to 32
    bits. `buffer` has `SPARE` limbs more than the number.
    """
    limbs = len(number)
    while limbs and number[limbs - 1] == 0:
        limbs -= 1
    if limbs == 0:
        return 0.0
    # Fractional limbs are appended, so that a quotient has at least two limbs for any divisors.
    divisors = int(first > 1) + int(second > 1) + int(third > 1)
    behind = max(0, 3 + divisors - limbs) if divisors else 0
    total = limbs + behind
    for index in range(behind):
        buffer[index] = 0
    for index in range(limbs):
        buffer[behind + index] = number[index]
    more = False  # True if a division has left a remainder, so that `buffer` is rounded down
    for divisor in (np.uint64(first), np.uint64(second), np.uint64(third)):
        if divisor != _ONE:
            rest = np.uint64(0)
            for index in range(total - 1, -1, -1):
                rest = (rest << _LIMB) | np.uint64(buffer[index])
                buffer[index] = rest // divisor
                rest %= divisor
            more |= rest != 0
    while buffer[total - 1] == 0:
        total -= 1
    length = 32 * (total - 1)
    head = buffer[total - 1]
    while head:
        length += 1
        head >>= np.uint32(1)
    # A double has at most 53 bits, and no bits below the smallest positive double.
    power = exponent - 32 * behind
    dropped = max(0, length - 53, _SMALLEST - power)
    if dropped > length:
        return 0.0
    digits = _bits_from(buffer, dropped, total)
    if dropped:
        limb, bit = (dropped - 1) >> 5, np.uint32((dropped - 1) & 31)
        if (buffer[limb] >> bit) & np.uint32(1):
            more |= buffer[limb] & ((np.uint32(1) << bit) - np.uint32(1)) != 0
            for index in range(limb):
                more |= buffer[index] != 0
            if more or digits & _ONE:
                digits += _ONE
    return np.float64(np.ldexp(np.float64(digits), power + dropped))


@kernel
def _bits_from(number: Limbs, lowest: int, limbs: int) -> np.uint64:
    """Return the bits of a multi-precision integer from bit `lowest` on, at most 53 bits."""
    limb, shift = lowest >> 5, np.uint64(lowest & 31)
    digits = np.uint64(0)
    if limb < limbs:
        digits = np.uint64(number[limb]) >> shift
    if limb + 1 < limbs:
        digits |= np.uint64(number[limb + 1]) << (_LIMB - shift)
    if limb + 2 < limbs and shift:
        digits |= np.uint64(number[limb + 2]) << (np.uint64(64) - shift)
    return digits


@kernel
def quotients(sums: Limbs, starts: Int64s, ends: Int64s, divisors: Int64s, exponent: int) -> Floats:
    """Divide the sum over each range of rows by a divisor, rounded once to the nearest double.

    `sums` are prefix sums in units of 2**exponent.
    """
    out = np.empty(len(starts))
    number = np.empty(sums.shape[1], np.uint32)
    buffer = np.empty(sums.shape[1] + SPARE, np.uint32)
    for i in range(len(starts)):
        _subtract(sums[ends[i]], sums[starts[i]], number)
        negative = number[-1] >> np.uint32(31) != 0
        if negative:
            negate(number)
        value = round_ratio(number, divisors[i], 1, 1, exponent, buffer)
        out[i] = -value if negative else value
    return out


@kernel
def variances(
    sums: Limbs,
    square_sums: Limbs,
    starts: Int64s,
    ends: Int64s,
    counts: Int64s,
    bias: int,
    divisor: int,
    exponent: int,
) -> Floats:
    """Return the variance of the numbers in each range of rows, divided by `divisor`.

    The variance is (n Σx² - (Σx)²) / (n (n - bias)), rounded once. For ranges with `bias` numbers or less,
    the result is 0. `sums` and `square_sums` are prefix sums in units of 2**exponent and its square.
    """
    out = np.zeros(len(starts))
    limbs = square_sums.shape[1]
    total = np.empty(sums.shape[1], np.uint32)
    squared, product = np.empty(limbs, np.uint32), np.empty(limbs, np.uint32)
    buffer = np.empty(limbs + SPARE, np.uint32)
    for i in range(len(starts)):
        count = counts[i]
        if count <= bias:
            continue
        _subtract(sums[ends[i]], sums[starts[i]], total)
        _square(total, squared)
        _subtract(square_sums[ends[i]], square_sums[starts[i]], product)
        carry = np.uint64(0)
        for index in range(limbs):
            carry += np.uint64(product[index]) * np.uint64(count)
            product[index] = carry & _MASK
            carry >>= _LIMB
        _subtract(product, squared, product)
        out[i] = round_ratio(product, count, count - bias, divisor, 2 * exponent, buffer)
    return out


@kernel
def decimal_means(sums: Limbs, starts: Int64s, ends: Int64s, counts: Int64s, factor: int) -> Limbs:
    """Return the mean of the numbers in each range of rows, times `factor`, rounded once to an integer.

    Halves are rounded away from zero. `factor` and counts have up to 32 bits. The caller ensures that the
    means fit into 128 bits.
    """
    size = sums.shape[1]
    out = np.zeros((len(starts), WHOLE), np.uint32)
    number = np.empty(size, np.uint32)
    product = np.empty(size + 1, np.uint32)
    for i in range(len(starts)):
        _subtract(sums[ends[i]], sums[starts[i]], number)
        negative = number[-1] >> np.uint32(31) != 0
        if negative:
            negate(number)
        carry = np.uint64(0)
        for index in range(size):
            carry += np.uint64(number[index]) * np.uint64(factor)
            product[index] = carry & _MASK
            carry >>= _LIMB
        product[size] = carry
        count = np.uint64(max(counts[i], 1))
        rest = np.uint64(0)
        for index in range(size, -1, -1):
            rest = (rest << _LIMB) | np.uint64(product[index])
            product[index] = rest // count
            rest %= count
        carry = np.uint64(rest + rest >= count)
        for index in range(WHOLE):
            carry += np.uint64(product[index])
            out[i, index] = carry & _MASK
            carry >>= _LIMB
        if negative:
            negate(out[i])
    return out


@kernel
def _running_words(groups: Any, words: Any, before: Any) -> Any:
    rows, size = words.shape
    out = np.zeros((rows + 1, size), np.uint64)
    for i in range(rows):
        carry = np.uint64(0)
        first = i == 0 or groups[i] != groups[i - 1]
        for index in range(size):
            known = before[groups[i], index] if first else out[i, index]
            total = known + words[i, index]
            carried = total + carry
            carry = np.uint64((total < known) | (carried < total))
            out[i + 1, index] = carried
    return out


def running_sums(groups: Any, numbers: Limbs, before: Limbs) -> Limbs:
    """Return the running sums of multi-precision integers in each group: row i + 1 includes number i.

    Row 0 is zero. Rows are sorted by group. `before` has the sum of each group before its first row.
    """
    words = _running_words(groups, numbers.view(np.uint64), np.ascontiguousarray(before).view(np.uint64))
    sums: Limbs = words.view(np.uint32)
    return sums


@kernel
def negate_where(numbers: Limbs, chosen: Any) -> None:
    """Negate, in place, the multi-precision integers for which `chosen` is True."""
    for i in range(len(numbers)):
        if chosen[i]:
            negate(numbers[i])


def widen(numbers: Limbs, size: int, shift: int = 0) -> Limbs:
    """Return multi-precision integers with `size` limbs each, shifted up by `shift` limbs.

    The shifted numbers must fit.
    """
    rows, known = numbers.shape
    if known == size and not shift:
        return numbers
    end = min(shift + known, size)
    out = np.zeros((rows, size), np.uint32)
    out[:, shift:end] = numbers[:, : end - shift]
    if end < size:
        signs = (numbers[:, -1].astype(np.int32) >> 31).astype(np.uint32)
        out[:, end:] = signs[:, None]
    return out


def limbs_of_int(number: int, limbs: int) -> Limbs:
    return np.frombuffer(number.to_bytes(4 * limbs, "little", signed=True), np.uint32)


def ints_of(numbers: Limbs) -> list[int]:
    """Convert multi-precision integers to Python integers."""
    wide = np.ascontiguousarray(numbers)
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in wide]


# Exact sums of doubles as pairs of doubles
#
# A sum is the unevaluated sum hi + lo of two doubles. Each step is an error-free transformation. If a
# rounding error remains, a flag in the result is set, and the caller computes with integers instead. So sums
# do not depend on the order of the summands, and a prefix can be subtracted. `hi` of a sum is the exact sum,
# rounded once.


_SPLIT = 134217729.0  # 2 ** 27 + 1
_DOUBT = 2.0**-48


@kernel(inline="always")
def two_sum(a: float, b: float) -> tuple[float, float]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@kernel(inline="always")
def two_product(a: float, b: float) -> tuple[float, float]:
    p = a * b
    t = _SPLIT * a
    a1 = t - (t - a)
    t = _SPLIT * b
    b1 = t - (t - b)
    a2, b2 = a - a1, b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


@kernel(inline="always")
def _add(hi: float, lo: float, x: float) -> tuple[float, float, bool]:
    s, e = two_sum(hi, x)
    t, left = two_sum(lo, e)
    hi, lo = two_sum(s, t)
    return hi, lo, left == 0.0


@kernel
def sum_by_group(hi: Floats, lo: Floats, group: Int64s, groups: int) -> tuple[Floats, Floats, bool]:
    high, low, exact = np.zeros(groups), np.zeros(groups), True
    for i in range(len(group)):
        g = group[i]
        h, rest, ok = _add(high[g], low[g], hi[i])
        if lo[i] != 0.0:
            h, rest, again = _add(h, rest, lo[i])
            ok = ok and again
        high[g], low[g] = h, rest
        exact = exact and ok
    return high, low, exact


@kernel
def pair_squares(values: Floats) -> tuple[Floats, Floats]:
    hi, lo = np.empty(len(values)), np.empty(len(values))
    for i in range(len(values)):
        hi[i], lo[i] = two_product(values[i], values[i])
    return hi, lo


@kernel
def prefixes(hi: Floats, lo: Floats, begin: Int64s) -> tuple[Floats, Floats, bool]:
    """Return the prefix sums of pairs of doubles for each key, and True if all sums are exact.

    The entries of key k start at begin[k]. Its sums start at begin[k] + k, because each key has one sum more
    than entries.
    """
    keys = len(begin) - 1
    high, low, exact = np.zeros(len(hi) + keys + 1), np.zeros(len(hi) + keys + 1), True
    for k in range(keys):
        h, rest = 0.0, 0.0
        for i in range(begin[k], begin[k + 1]):
            h, rest, ok = _add(h, rest, hi[i])
            if lo[i] != 0.0:
                h, rest, also_ok = _add(h, rest, lo[i])
                ok = ok and also_ok
            exact = exact and ok
            high[i + k + 1], low[i + k + 1] = h, rest
    return high, low, exact


@kernel
def pair_differences(
    high: Floats, low: Floats, lo: Int32s, hi: Int32s, rank: Int32s
) -> tuple[Floats, Floats, Bools]:
    """Return the sum over each span of rows, as the difference of two prefix sums of pairs of doubles.

    Span i starts at entry lo[i] and ends before entry hi[i] of key rank[i]. The last result is True for spans
    whose sum two doubles cannot represent.
    """
    n = len(rank)
    sums, rests, doubt = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    for i in range(n):
        a, b = lo[i] + rank[i], hi[i] + rank[i]
        s, e = two_sum(high[b], -high[a])
        t, f = two_sum(low[b], -low[a])
        u, g = two_sum(e, t)
        h, v = two_sum(s, u)
        v, r1 = two_sum(v, g)
        v, r2 = two_sum(v, f)
        sums[i], rests[i] = two_sum(h, v)
        doubt[i] = r1 != 0.0 or r2 != 0.0
    return sums, rests, doubt


@kernel
def pair_quotients(hi: Floats, lo: Floats, count: Int64s) -> tuple[Floats, Bools]:
    """Divide each sum, a pair of doubles, by its count, rounded once.

    The second result is True where the last bit of the quotient may be wrong.
    """
    out, doubt = np.empty(len(hi)), np.zeros(len(hi), np.bool_)
    for i in range(len(hi)):
        n = float(max(count[i], 1))
        q = hi[i] / n
        p, e = two_product(q, n)
        left, lost = two_sum((hi[i] - p) - e, lo[i])
        rest = left / n
        out[i] = q + rest
        # If all previous steps are exact, the last addition rounds once, and the result is correct.
        p, e = two_product(rest, n)
        if lost != 0.0 or p != left or e != 0.0:
            doubt[i] = q + rest * (1.0 - _DOUBT) != q + rest * (1.0 + _DOUBT)
        doubt[i] = doubt[i] or not abs(hi[i]) < 1e290 or 0.0 < abs(hi[i]) < 1e-250
    return out, doubt


# Exact sums over spans of rows, and their means and variances, each rounded once
#
# Infinities and NaNs are counted separately, because subtraction cannot remove them from a sum.


SMALLEST = 1074  # negated power of two of the smallest double, 2 ** -1074


def double_units(value: float, bits: int) -> int:
    """Return the integer n with value = n * 2**-bits, for a double `value`."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (bits - denominator.bit_length() + 1)


def integers(values: list[int]) -> NDArray[Any]:
    """Return a NumPy object array of Python integers."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


@dataclass(frozen=True)
class Totals:
    """Exact sums over spans, which are ranges of rows.

    Each sum is an integer multiple of 1 / `units` (`whole`), or a pair of doubles (`hi`, `lo`). `nonfinite`
    has the number of NaNs and infinities in each span.
    """

    units: int
    whole: NDArray[Any] | None = None
    hi: NDArray[np.float64] | None = None
    lo: NDArray[np.float64] | None = None
    nonfinite: dict[str, Int64s] = field(default_factory=dict)

    def wide(self) -> NDArray[Any]:
        """Return the sums over all spans as Python integers, in multiples of 1 / `units`."""
        if self.whole is not None:
            return self.whole.astype(object)
        assert self.hi is not None and self.lo is not None
        bits = self.units.bit_length() - 1
        pairs = zip(self.hi.tolist(), self.lo.tolist(), strict=True)
        return integers([double_units(hi, bits) + double_units(lo, bits) for hi, lo in pairs])

    def doubles(self) -> NDArray[np.float64]:
        """Return the sum over each span as a double, rounded once."""
        if self.hi is not None:
            return self._restore_nonfinite(self.hi)
        return self._restore_nonfinite(
            np.array([_ratio(v, self.units) for v in self.wide().tolist()], np.float64)
        )

    def means(self, count: Int64s) -> NDArray[np.float64]:
        """Return the mean of each span as a double, rounded once. Means of empty spans are arbitrary."""
        if self.hi is not None:
            assert self.lo is not None
            means, doubt = pair_quotients(self.hi, self.lo, count)
        elif self.whole is not None and self.whole.dtype != object and self.units == 1:
            means, doubt = _whole_means(self.whole, count)
        else:
            means, doubt = np.zeros(len(count)), np.ones(len(count), np.bool_)
        indices = np.flatnonzero(doubt & (count > 0))
        if len(indices):
            wide = self.take(indices).wide().tolist()
            values = [_ratio(v, self.units * n) for v, n in zip(wide, count[indices].tolist(), strict=True)]
            means[indices] = values
        return self._restore_nonfinite(means)

    def take(self, indices: Int64s) -> Totals:
        whole, hi, lo = (None if a is None else a[indices] for a in (self.whole, self.hi, self.lo))
        return Totals(self.units, whole, hi, lo)

    def _restore_nonfinite(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Replace the results of spans that contain infinities or NaNs."""
        if not self.nonfinite:
            return values
        nan, up, down = (self.nonfinite[name] > 0 for name in ("nan", "up", "down"))
        return with_nonfinite(values, nan, up, down)


def with_nonfinite(
    sums: NDArray[np.float64], nan: NDArray[np.bool_], up: NDArray[np.bool_], down: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Correct sums of finite numbers for spans that also contain NaN or infinities.

    The masks `nan`, `up` and `down` are True for spans with NaN, with inf and with -inf.
    """
    sums = np.where(up, np.inf, np.where(down, -np.inf, sums))
    return np.where(nan | (up & down), np.nan, sums)


@kernel
def _whole_means(whole: Int64s, count: Int64s) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Divide integer sums by counts. The second result is True where a double cannot represent the sum."""
    means, doubt = np.empty(len(whole)), np.empty(len(whole), np.bool_)
    for i in range(len(whole)):
        means[i] = whole[i] / max(count[i], 1)
        doubt[i] = whole[i] > 2**53 or whole[i] < -(2**53)
    return means, doubt


def _ratio(whole: int, divisor: int) -> float:
    """Divide two Python integers, rounded once to a double."""
    try:
        return whole / divisor
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def span_variances(first: Totals, second: Totals, count: Int64s, bias: int) -> NDArray[np.float64]:
    """Return the variance of each span: its squared deviations from the mean over (count - bias).

    `first` has the sums of the numbers, `second` the sums of their squares. The variance is rounded once. It
    is arbitrary if the count is not greater than `bias`.
    """
    n = np.maximum(count, bias + 1)
    variances = np.zeros(len(count))
    doubt = np.ones(len(count), np.bool_)
    a, b = first.whole, second.whole
    if a is not None and b is not None and a.dtype != object and b.dtype != object and first.units == 1:
        sizes = np.maximum(n * b.astype(np.float64), a.astype(np.float64) ** 2)
        doubt = sizes >= 2.0**53
        safe = ~doubt
        variances[safe] = (n[safe] * b[safe] - a[safe] ** 2) / (n[safe] * (n[safe] - bias)).astype(np.float64)
    indices = np.flatnonzero(doubt & (count > bias))
    if len(indices):
        sums, squares = first.take(indices).wide().tolist(), second.take(indices).wide().tolist()
        variances[indices] = [
            _ratio(m * square - total * total, second.units * m * (m - bias))
            for m, total, square in zip(n[indices].tolist(), sums, squares, strict=True)
        ]
    nonfinite = sum((second.nonfinite[f] for f in second.nonfinite), np.zeros(len(count), np.int64))
    return np.where(nonfinite > 0, np.nan, variances)


# Exact sum of doubles for generated code
#
# The sum is an integer of 32-bit limbs, which covers the range of all doubles. Each limb is stored as an
# int64, so that carries are propagated only when the sum is read. Three more array elements count infinities
# and NaNs.


DIGITS = 68
LOWEST = -1074  # power of two of the lowest bit
_LOW_BITS = 0xFFFFFFFF
CELLS = DIGITS + 3
PLUS, MINUS, NAN = DIGITS, DIGITS + 1, DIGITS + 2


@kernel
def add(sums: Any, x: float) -> None:
    if not np.isfinite(x):
        sums[NAN if x != x else PLUS if x > 0 else MINUS] += 1
        return
    if x == 0.0:
        return
    fraction, exponent = math.frexp(abs(x))
    low = exponent - 53
    if low < -1074:  # a subnormal number, which has fewer bits
        fraction, low = math.ldexp(fraction, exponent + 1074 - 53), -1074
    whole = np.int64(math.ldexp(fraction, 53))
    index, shift = divmod(low - LOWEST, 32)
    first = np.uint64(whole & _LOW_BITS) << np.uint64(shift)
    second = np.int64(whole >> 32) << shift
    sign = 1 if x > 0 else -1
    sums[index] += sign * np.int64(first & np.uint64(_LOW_BITS))
    sums[index + 1] += sign * (np.int64(first >> np.uint64(32)) + (second & _LOW_BITS))
    sums[index + 2] += sign * (second >> 32)


@kernel
def add_integer(sums: Any, x: int) -> None:
    add(sums, float(x >> 32) * 4294967296.0)
    add(sums, float(x & _LOW_BITS))


@kernel
def quotient(sums: Any, count: int) -> float:
    """Divide the exact sum by `count` (at most 2**32), rounded once to a double."""
    if sums[NAN] > 0 or (sums[PLUS] > 0 and sums[MINUS] > 0):
        return np.nan
    if sums[PLUS] > 0 or sums[MINUS] > 0:
        return np.inf if sums[PLUS] > 0 else -np.inf
    number = np.empty(DIGITS, np.uint32)
    carry = np.int64(0)
    for i in range(DIGITS):
        carry += sums[i]
        number[i] = carry & _LOW_BITS
        carry >>= 32
    if carry < 0:
        negate(number)
    value = round_ratio(number, count, 1, 1, LOWEST, np.empty(DIGITS + SPARE, np.uint32))
    return -value if carry < 0 else value
