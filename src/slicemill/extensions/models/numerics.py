"""Double-double arithmetic for compiled code (C24).

A number is an unevaluated sum of two doubles, `high + low`, with 106 bits. Sums keep the rounding error
of each addition, so an element that was added and subtracted leaves almost no error. Formulas such as
n·Σx² - (Σx)² use the same arithmetic, so cancellation affects only digits beyond double precision. NaN
means no value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slicemill.kernels.kernel import kernel

_SPLIT = 134217729.0  # 2^27 + 1
# A difference of two sums is rounding noise if it is below this share of the first sum.
NOISE = 2.0**-84
_ROOM = 2.0**300


@kernel
def _sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b and its rounding error."""
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
    """Return a - b of rounded values, 0 if only noise remains."""
    h, low = add(ah, al, -bh, -bl)
    if abs(h) <= NOISE * abs(ah):
        return 0.0, 0.0
    return h, low


@kernel
def total(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """Return a + b of rounded values, 0 if only noise remains."""
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
    """Raise to an integer power by squaring. 0^0 is 1."""
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
    """Return 1, 0, or NaN if an operand has no value."""
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
    """Multiply or divide (h + low)·2^scale by a nonzero number.

    h = 0 is the initial state and means 1.
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
    """Return the angle of u steps of p/q turns, reduced exactly."""
    return 2.0 * math.pi * ((p * (u % q)) % q) / q


@kernel
def angle(high: float, low: float, u: int) -> float:
    """Return the angle of u steps of fractional turns, reduced first."""
    h, rest = multiply(high, low, float(u), 0.0)
    fh, fl = floor(h, rest)
    h, rest = subtract(h, rest, fh, fl)
    return 2.0 * math.pi * h


# Order statistics of a window for compiled code, with two heaps (C17).
#
# One heap has the elements below a rank, the other those above it. An entry is a value and the number of
# its element, so no two entries are equal. Elements with numbers below `gone` have expired. They are
# removed lazily at the top, or all at once when they outnumber live elements. So an element costs O(log n).
# The lower heap stores negated values and numbers, so the first entry of each heap is next to the rank.


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
    """Remove expired entries at the top, or all expired entries if there are too many."""
    if rows > 2 * live + _FEW:
        kept = 0
        for i in range(rows):
            if abs(pool[at + i].number) >= gone:
                pool[at + kept].value, pool[at + kept].number = pool[at + i].value, pool[at + i].number
                kept += 1
        rows = kept
        for i in range(rows // 2 - 1, -1, -1):
            _sink(pool, at, rows, i)
    while rows > 0 and abs(pool[at].number) < gone:
        rows = _pop(pool, at, rows)
    return rows


@kernel
def _balance(
    lower: Any, la: int, lr: int, ll: int, upper: Any, ua: int, ur: int, ul: int, gone: int, target: int
) -> tuple[int, int, int, int]:
    """Move elements until the lower heap has `target` live ones.

    Return the numbers of entries and live elements of both heaps.
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
def came(
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
    """Add an element. Both heaps must have room for one more entry."""
    if ll > 0 and value < -lower[la].value:
        lr, ll = _push(lower, la, lr, -value, -number), ll + 1
    else:
        ur, ul = _push(upper, ua, ur, value, number), ul + 1
    return _balance(lower, la, lr, ll, upper, ua, ur, ul, gone, target)


@kernel
def left(
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
    """Remove the oldest element, whose number is `gone`."""
    if ll > 0 and (value < -lower[la].value or (value == -lower[la].value and gone <= -lower[la].number)):
        ll -= 1
    else:
        ul -= 1
    return _balance(lower, la, lr, ll, upper, ua, ur, ul, gone + 1, target)
