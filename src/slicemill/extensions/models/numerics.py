"""Double-double arithmetic and order statistics for the compiled code of models (C24, C17).

A double-double number is the unevaluated sum of two doubles, `high + low`, with 106 bits. Sums include the
rounding error of each addition, so adding and later subtracting an element leaves almost no error. Formulas
such as n·Σx² - (Σx)² use the same arithmetic, so cancellation affects only digits beyond double precision.
NaN means no value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slicemill.kernels.kernel import kernel

# 2^27 + 1, the factor that splits a double into two halves of 26 bits
_SPLIT = 134217729.0

# A difference of two sums is rounding noise if it is below this fraction of the first sum.
NOISE = 2.0**-84
_ROOM = 2.0**300


@kernel
def _sum(a: float, b: float) -> tuple[float, float]:
    """Return the sum a + b of two doubles, and the rounding error of the sum."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@kernel
def _product(a: float, b: float) -> tuple[float, float]:
    p = a * b
    t = _SPLIT * a
    ah = t - (t - a)
    al = a - ah
    t = _SPLIT * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@kernel
def _tidy(high: float, low: float) -> tuple[float, float]:
    s = high + low
    return s, low - (s - high)


@kernel
def add(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    s, e = _sum(ah, bh)
    t, f = _sum(al, bl)
    s, e = _tidy(s, e + t)
    return _tidy(s, e + f)


@kernel
def subtract(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    return add(ah, al, -bh, -bl)


@kernel
def difference(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """Return the double-double difference a - b, or 0 if the difference is only rounding noise."""
    h, low = add(ah, al, -bh, -bl)
    if abs(h) <= NOISE * abs(ah):
        return 0.0, 0.0
    return h, low


@kernel
def total(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """Return the double-double sum a + b, or 0 if the sum is only rounding noise."""
    return difference(ah, al, -bh, -bl)


@kernel
def multiply(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    p, e = _product(ah, bh)
    return _tidy(p, e + (ah * bl + al * bh))


@kernel
def divide(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    if bh == 0.0:
        return np.nan, 0.0
    q = ah / bh
    ph, pl = _product(q, bh)
    return _tidy(q, (((ah - ph) - pl) + al - q * bl) / bh)


@kernel
def whole_power(ah: float, al: float, exponent: int) -> tuple[float, float]:
    """Raise a double-double number to an integer power by repeated squaring. 0^0 is 1."""
    rh, rl = 1.0, 0.0
    bh, bl = ah, al
    left = abs(exponent)
    while left > 0:
        if left & 1:
            rh, rl = multiply(rh, rl, bh, bl)
        left >>= 1
        if left > 0:
            bh, bl = multiply(bh, bl, bh, bl)
    if exponent < 0:
        return divide(1.0, 0.0, rh, rl)
    return rh, rl


@kernel
def power(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    if bl == 0.0 and bh == math.floor(bh) and abs(bh) <= 4096.0:
        return whole_power(ah, al, int(bh))
    if ah < 0.0 or (ah == 0.0 and bh < 0.0):
        return np.nan, 0.0
    return ah**bh, 0.0


@kernel
def root(ah: float, al: float) -> tuple[float, float]:
    if ah < 0.0 or ah != ah:
        return np.nan, 0.0
    if ah == 0.0:
        return 0.0, 0.0
    s = math.sqrt(ah)
    ph, pl = _product(s, s)
    rh, _ = add(ah, al, -ph, -pl)
    return _tidy(s, rh / (2.0 * s))


@kernel
def modulo(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    qh, ql = divide(ah, al, bh, bl)
    qh, ql = floor(qh, ql)
    ph, pl = multiply(qh, ql, bh, bl)
    return add(ah, al, -ph, -pl)


@kernel
def floor(ah: float, al: float) -> tuple[float, float]:
    f = np.floor(ah)
    if f == ah:
        return _tidy(f, np.floor(al))
    return f, 0.0


@kernel
def ceil(ah: float, al: float) -> tuple[float, float]:
    h, low = floor(-ah, -al)
    return -h, -low


@kernel
def absolute(ah: float, al: float) -> tuple[float, float]:
    return (-ah, -al) if ah < 0.0 else (ah, al)


@kernel
def sign(ah: float, al: float) -> tuple[float, float]:  # noqa: ARG001
    return (1.0 if ah > 0.0 else -1.0 if ah < 0.0 else ah), 0.0


@kernel
def nonnegative(ah: float, al: float) -> tuple[float, float]:
    return (0.0, 0.0) if ah < 0.0 else (ah, al)


@kernel
def log(ah: float, al: float) -> tuple[float, float]:
    if not ah > 0.0:
        return np.nan, 0.0
    return _tidy(math.log(ah), al / ah)


@kernel
def exp(ah: float, al: float) -> tuple[float, float]:
    if not ah < 709.0:
        return np.nan, 0.0
    h = math.exp(ah)
    return h, h * al


@kernel
def sin(ah: float, al: float) -> tuple[float, float]:
    return (math.sin(ah), al * math.cos(ah)) if abs(ah) < np.inf else (np.nan, 0.0)


@kernel
def cos(ah: float, al: float) -> tuple[float, float]:
    return (math.cos(ah), -al * math.sin(ah)) if abs(ah) < np.inf else (np.nan, 0.0)


@kernel
def less(ah: float, al: float, bh: float, bl: float) -> float:
    """Return 1 if a < b, otherwise 0. Return NaN if an operand is NaN."""
    if ah != ah or bh != bh:
        return np.nan
    return 1.0 if ah < bh or (ah == bh and al < bl) else 0.0


@kernel
def equal(ah: float, al: float, bh: float, bl: float) -> float:
    if ah != ah or bh != bh:
        return np.nan
    return 1.0 if ah == bh and al == bl else 0.0


@kernel
def scaled_product(
    h: float, low: float, scale: int, bh: float, bl: float, inverse: bool
) -> tuple[float, float, int]:
    """Multiply or divide (h + low)·2^scale by a nonzero double-double number.

    Return the new h, low and scale. The initial state h = 0 means 1.
    """
    if h == 0.0:
        h, low = 1.0, 0.0
    while abs(bh) > _ROOM:
        bh, bl = bh / _ROOM, bl / _ROOM
        scale += -300 if inverse else 300
    while abs(bh) < 1.0 / _ROOM:
        bh, bl = bh * _ROOM, bl * _ROOM
        scale += 300 if inverse else -300
    if inverse:
        h, low = divide(h, low, bh, bl)
    else:
        h, low = multiply(h, low, bh, bl)
    if abs(h) > _ROOM:
        return h / _ROOM, low / _ROOM, scale + 300
    if abs(h) < 1.0 / _ROOM:
        return h * _ROOM, low * _ROOM, scale - 300
    return h, low, scale


@kernel
def unscaled(h: float, low: float, scale: int) -> tuple[float, float]:
    """Return (h + low)·2^scale as a double-double number."""
    if h == 0.0:
        return 1.0, 0.0
    exponent = math.frexp(h)[1] + scale
    if exponent > 1024:
        return np.nan, 0.0
    if exponent < -1100:
        return 0.0, 0.0
    return math.ldexp(h, int(scale)), math.ldexp(low, int(scale))


@kernel
def greatest_common(a: int, b: int) -> int:
    while b != 0:
        a, b = b, a % b
    return abs(a)


@kernel
def turn(p: int, q: int, u: int) -> float:
    """Return the angle in radians of u steps of p/q turns each, without the full turns.

    Full turns are removed exactly, in integers.
    """
    return 2.0 * math.pi * ((p * (u % q)) % q) / q


@kernel
def angle(high: float, low: float, u: int) -> float:
    """Return the angle in radians of u steps of `high + low` turns each, without the full turns.

    Full turns are removed in double-double arithmetic.
    """
    h, rest = multiply(high, low, float(u), 0.0)
    fh, fl = floor(h, rest)
    h, rest = subtract(h, rest, fh, fl)
    return 2.0 * math.pi * h


# Order statistics of a window (median, quantile) in two heaps (C17)
#
# One heap has the elements below a rank, the other heap has the elements above the rank. An entry is a value
# and the sequence number of its element, so no two entries are equal. Elements with numbers below `gone` have
# expired. They are removed when they reach the top, or all at once when they outnumber live elements. So an
# element costs O(log n). The lower heap stores negated values and numbers, so the first entry of each heap is
# next to the rank. Parameters of a heap are its array, the offset of its first entry, its number of entries,
# and its number of live elements: `lower, la, lr, ll` and `upper, ua, ur, ul`.


_FEW = 32


@kernel
def _before(pool: Any, a: int, b: int) -> bool:
    first, second = pool[a], pool[b]
    return bool(first.value < second.value or (first.value == second.value and first.number < second.number))


@kernel
def _swap(pool: Any, a: int, b: int) -> None:
    value, number = pool[a].value, pool[a].number
    pool[a].value, pool[a].number = pool[b].value, pool[b].number
    pool[b].value, pool[b].number = value, number


@kernel
def _sink(pool: Any, at: int, rows: int, index: int) -> None:
    while True:
        child = 2 * index + 1
        if child >= rows:
            return
        if child + 1 < rows and _before(pool, at + child + 1, at + child):
            child += 1
        if not _before(pool, at + child, at + index):
            return
        _swap(pool, at + child, at + index)
        index = child


@kernel
def _push(pool: Any, at: int, rows: int, value: float, number: int) -> int:
    pool[at + rows].value, pool[at + rows].number = value, number
    index = rows
    while index > 0 and _before(pool, at + index, at + (index - 1) // 2):
        _swap(pool, at + index, at + (index - 1) // 2)
        index = (index - 1) // 2
    return rows + 1


@kernel
def _pop(pool: Any, at: int, rows: int) -> int:
    _swap(pool, at, at + rows - 1)
    _sink(pool, at, rows - 1, 0)
    return rows - 1


@kernel
def _prune(pool: Any, at: int, rows: int, live: int, gone: int) -> int:
    """Remove expired entries of a heap: those at the top, or all if more than half have expired.

    Elements with numbers below `gone` have expired. Return the number of entries.
    """
    if rows > 2 * live + _FEW:
        count = 0
        for i in range(rows):
            if abs(pool[at + i].number) >= gone:
                pool[at + count].value, pool[at + count].number = pool[at + i].value, pool[at + i].number
                count += 1
        rows = count
        for i in range(rows // 2 - 1, -1, -1):
            _sink(pool, at, rows, i)
    while rows > 0 and abs(pool[at].number) < gone:
        rows = _pop(pool, at, rows)
    return rows


@kernel
def _balance(
    lower: Any, la: int, lr: int, ll: int, upper: Any, ua: int, ur: int, ul: int, gone: int, target: int
) -> tuple[int, int, int, int]:
    """Move elements between the two heaps until the lower heap has `target` live elements.

    Return the numbers of entries and of live elements of both heaps.
    """
    lr = _prune(lower, la, lr, ll, gone)
    ur = _prune(upper, ua, ur, ul, gone)
    while ll < target:
        value, number = upper[ua].value, upper[ua].number
        ur = _pop(upper, ua, ur)
        lr = _push(lower, la, lr, -value, -number)
        ll, ul = ll + 1, ul - 1
        ur = _prune(upper, ua, ur, ul, gone)
    while ll > target:
        value, number = lower[la].value, lower[la].number
        lr = _pop(lower, la, lr)
        ur = _push(upper, ua, ur, -value, -number)
        ll, ul = ll - 1, ul + 1
        lr = _prune(lower, la, lr, ll, gone)
    return lr, ll, ur, ul


@kernel
def insert(
    lower: Any,
    la: int,
    lr: int,
    ll: int,
    upper: Any,
    ua: int,
    ur: int,
    ul: int,
    value: float,
    number: int,
    gone: int,
    target: int,
) -> tuple[int, int, int, int]:
    """Add an element to the two heaps of a median or quantile.

    Both heaps must have room for one more entry. Return the new sizes, like `_balance`.
    """
    if ll > 0 and value < -lower[la].value:
        lr, ll = _push(lower, la, lr, -value, -number), ll + 1
    else:
        ur, ul = _push(upper, ua, ur, value, number), ul + 1
    return _balance(lower, la, lr, ll, upper, ua, ur, ul, gone, target)


@kernel
def remove_oldest(
    lower: Any,
    la: int,
    lr: int,
    ll: int,
    upper: Any,
    ua: int,
    ur: int,
    ul: int,
    value: float,
    gone: int,
    target: int,
) -> tuple[int, int, int, int]:
    """Remove the oldest element, whose number is `gone`, from the two heaps of a median or quantile."""
    if ll > 0 and (value < -lower[la].value or (value == -lower[la].value and gone <= -lower[la].number)):
        ll -= 1
    else:
        ul -= 1
    return _balance(lower, la, lr, ll, upper, ua, ur, ul, gone + 1, target)
