"""Multi-precision integers in bulk, for sums that are exact in any order.

A number is a row of 32-bit limbs, lowest first, in two's complement. All rows of a column have as many limbs
as the sums need (`limbs_for`). Doubles are integer multiples of one power of two, the `exponent`. Sums may
wrap round: differences of prefix sums are right if the differences themselves fit. `rounded` converts an
exact number to a double.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Limbs: TypeAlias = NDArray[np.uint32]
Places: TypeAlias = NDArray[np.int64]
Doubles: TypeAlias = NDArray[np.float64]

WHOLE = 4  # limbs for decimals, and for sums of 64-bit integers
SPARE = 5  # extra limbs in the buffer of `rounded`

_LIMB = np.uint64(32)
_MASK = np.uint64(0xFFFF_FFFF)
_ONE = np.uint64(1)
_FRACTION = np.int64((1 << 52) - 1)
_IMPLICIT = np.int64(1 << 52)
_SMALLEST = -1074  # power of two of the smallest double


def limbs_for(bits: int, count: int) -> int:
    """Return an even number of limbs for sums of `count` numbers."""
    return max(WHOLE, 2 * -(-(bits + count.bit_length() + 1) // 64))


@kernel
def exponent_range(values: Doubles, counted: Any) -> tuple[int, int]:
    """Return the powers of two that delimit all bits of the numbers.

    These are the power of the lowest bit and the power above the highest bit, or (0, 0) if all numbers are 0.
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
def limbs_of_doubles(values: Doubles, counted: Any, lowest: int, limbs: int) -> Limbs:
    """Return the counted doubles as multiples of 2**lowest, other doubles as 0."""
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
        # Shifted by less than a limb, 53 bits occupy at most three limbs.
        parts = (
            (low << within) & _MASK,
            ((low << within) >> _LIMB) | ((high << within) & _MASK),
            (high << within) >> _LIMB,
        )
        for place in range(3):
            if limb + place < limbs:
                out[i, limb + place] = parts[place]
        if bits[i] < 0:
            negate(out[i])
    return out


@kernel
def limbs_of_integers(values: Places, counted: Any) -> Limbs:
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
    for place in range(len(number)):
        carry += np.uint64(number[place]) ^ _MASK
        number[place] = carry & _MASK
        carry >>= _LIMB


@kernel
def _square(number: Limbs, out: Limbs) -> None:
    """Square a number; `number` becomes its absolute value."""
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
        for place in range(words):
            total = out[i, place] + numbers[i, place]
            carried = total + carry
            # Unsigned: a sum that is less than one of its operands has wrapped round.
            carry = np.uint64((total < numbers[i, place]) | (carried < total))
            out[i + 1, place] = carried


def prefix_sums(numbers: Limbs) -> Limbs:
    """Return in row i the sum of the numbers before row i."""
    rows, limbs = numbers.shape
    out = np.zeros((rows + 1, limbs), np.uint32)
    # Processes two limbs at a time, which are one 64-bit word in memory.
    _add_up(numbers.view(np.uint64), out.view(np.uint64))
    return out


@kernel
def _subtract(left: Limbs, right: Limbs, out: Limbs) -> None:
    borrow = np.uint64(0)
    for place in range(len(left)):
        borrow = np.uint64(left[place]) - np.uint64(right[place]) - borrow
        out[place] = borrow & _MASK
        borrow = (borrow >> _LIMB) & _ONE


@kernel
def differences(sums: Limbs, starts: Places, ends: Places) -> Limbs:
    """Return the sum of each range of rows."""
    out = np.empty((len(starts), sums.shape[1]), np.uint32)
    for i in range(len(starts)):
        _subtract(sums[ends[i]], sums[starts[i]], out[i])
    return out


@kernel
def rounded(number: Limbs, first: int, second: int, third: int, exponent: int, buffer: Limbs) -> float:
    """Return number / (first * second * third) * 2**exponent.

    The result is the nearest double; ties go to even. The number must not be negative. Divisors have up to 32
    bits. `buffer` has `SPARE` limbs more than the number.
    """
    limbs = len(number)
    while limbs and number[limbs - 1] == 0:
        limbs -= 1
    if limbs == 0:
        return 0.0
    # Enough fractional limbs that a quotient has at least two limbs, for any divisors.
    divisors = int(first > 1) + int(second > 1) + int(third > 1)
    behind = max(0, 3 + divisors - limbs) if divisors else 0
    total = limbs + behind
    for place in range(behind):
        buffer[place] = 0
    for place in range(limbs):
        buffer[behind + place] = number[place]
    more = False  # True if the exact value is slightly greater than the buffer
    for divisor in (np.uint64(first), np.uint64(second), np.uint64(third)):
        if divisor != _ONE:
            rest = np.uint64(0)
            for place in range(total - 1, -1, -1):
                rest = (rest << _LIMB) | np.uint64(buffer[place])
                buffer[place] = rest // divisor
                rest %= divisor
            more |= rest != 0
    while buffer[total - 1] == 0:
        total -= 1
    length = 32 * (total - 1)
    head = buffer[total - 1]
    while head:
        length += 1
        head >>= np.uint32(1)
    # A double has 53 bits, and none below the smallest double.
    power = exponent - 32 * behind
    dropped = max(0, length - 53, _SMALLEST - power)
    if dropped > length:
        return 0.0
    digits = _bits_from(buffer, dropped, total)
    if dropped:
        limb, bit = (dropped - 1) >> 5, np.uint32((dropped - 1) & 31)
        if (buffer[limb] >> bit) & np.uint32(1):
            more |= buffer[limb] & ((np.uint32(1) << bit) - np.uint32(1)) != 0
            for place in range(limb):
                more |= buffer[place] != 0
            if more or digits & _ONE:
                digits += _ONE
    return np.float64(np.ldexp(np.float64(digits), power + dropped))


@kernel
def _bits_from(number: Limbs, lowest: int, limbs: int) -> np.uint64:
    """Return the bits of a number from bit `lowest`, at most 53."""
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
def quotients(sums: Limbs, starts: Places, ends: Places, divisors: Places, exponent: int) -> Doubles:
    """Return each range's sum over its divisor, rounded to the nearest double."""
    out = np.empty(len(starts))
    number = np.empty(sums.shape[1], np.uint32)
    buffer = np.empty(sums.shape[1] + SPARE, np.uint32)
    for i in range(len(starts)):
        _subtract(sums[ends[i]], sums[starts[i]], number)
        negative = number[-1] >> np.uint32(31) != 0
        if negative:
            negate(number)
        value = rounded(number, divisors[i], 1, 1, exponent, buffer)
        out[i] = -value if negative else value
    return out


@kernel
def variances(
    sums: Limbs,
    square_sums: Limbs,
    starts: Places,
    ends: Places,
    counts: Places,
    bias: int,
    divisor: int,
    exponent: int,
) -> Doubles:
    """Return the variance of each range, divided by `divisor`.

    The variance is (n Σx² - (Σx)²) / (n (n - bias)). Ranges with `bias` numbers or less are 0.
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
        for place in range(limbs):
            carry += np.uint64(product[place]) * np.uint64(count)
            product[place] = carry & _MASK
            carry >>= _LIMB
        _subtract(product, squared, product)
        out[i] = rounded(product, count, count - bias, divisor, 2 * exponent, buffer)
    return out


@kernel
def decimal_means(sums: Limbs, starts: Places, ends: Places, counts: Places, factor: int) -> Limbs:
    """Return factor * sum / count of each range, rounded once.

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
        for place in range(size):
            carry += np.uint64(number[place]) * np.uint64(factor)
            product[place] = carry & _MASK
            carry >>= _LIMB
        product[size] = carry
        count = np.uint64(max(counts[i], 1))
        rest = np.uint64(0)
        for place in range(size, -1, -1):
            rest = (rest << _LIMB) | np.uint64(product[place])
            product[place] = rest // count
            rest %= count
        carry = np.uint64(rest + rest >= count)
        for place in range(WHOLE):
            carry += np.uint64(product[place])
            out[i, place] = carry & _MASK
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
        for place in range(size):
            known = before[groups[i], place] if first else out[i, place]
            total = known + words[i, place]
            carried = total + carry
            carry = np.uint64((total < known) | (carried < total))
            out[i + 1, place] = carried
    return out


def running_sums(groups: Any, numbers: Limbs, before: Limbs) -> Limbs:
    """Return running sums per group: row i + 1 includes row i.

    Row 0 is zero. Rows are sorted by group. `before` has the sum of each group before its first row.
    """
    found = _running_words(groups, numbers.view(np.uint64), np.ascontiguousarray(before).view(np.uint64))
    sums: Limbs = found.view(np.uint32)
    return sums


@kernel
def negate_where(numbers: Limbs, chosen: Any) -> None:
    """Negate the chosen numbers in place."""
    for i in range(len(numbers)):
        if chosen[i]:
            negate(numbers[i])


def widened(numbers: Limbs, size: int, shift: int = 0) -> Limbs:
    """Return the numbers with `size` limbs, shifted up by `shift` limbs.

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
    """Return the numbers as Python integers."""
    wide = np.ascontiguousarray(numbers)
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in wide]
