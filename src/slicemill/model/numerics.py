"""Numbers of twice the digits of a double, for machine code (C24).

A number is an unevaluated sum of two doubles, `high + low`, with 106 bits. Sums keep what each addition
rounds away, so that a value that came and went leaves next to nothing behind; formulas such as n·Σx² - (Σx)²
are worked out in the same numbers, so that cancellation costs digits that nobody sees. NaN stands for no
value.
"""

from __future__ import annotations

import math

import numpy as np

from slicemill.machine_code.kernel import kernel

_SPLIT = 134217729.0  # 2^27 + 1
# What two sums differ by is rounding, not value, once it is so small beside them.
NOISE = 2.0**-84
_ROOM = 2.0**300


@kernel
def _sum(a: float, b: float) -> tuple[float, float]:
    """a + b, and what that rounds away."""
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
    """a - b of two values of a window, which rounding has touched: 0 where only that tells them apart."""
    h, low = add(ah, al, -bh, -bl)
    if abs(h) <= NOISE * abs(ah):
        return 0.0, 0.0
    return h, low


@kernel
def total(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    """a + b in the same way."""
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
    """By squaring; 0^0 is 1."""
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
    """1, 0, or NaN where there is nothing to compare."""
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
    """(h + low)·2^scale times, or over, a number that is not 0. A h of 0 stands for 1: nothing yet."""
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
    """The product itself."""
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
    """The angle of u steps of p/q of a full turn: whole turns are left out before anything is rounded."""
    return 2.0 * math.pi * ((p * (u % q)) % q) / q


@kernel
def angle(high: float, low: float, u: int) -> float:
    """The angle of u steps of so many turns each, in the same way."""
    h, rest = multiply(high, low, float(u), 0.0)
    fh, fl = floor(h, rest)
    h, rest = subtract(h, rest, fh, fl)
    return 2.0 * math.pi * h
