"""Exact sums of doubles as unevaluated pairs (hi, lo).

Each step is an error-free transformation. If an error remains, the returned flag is set, and the caller must
compute with integers instead. So sums do not depend on the order of the summands, and a prefix can be
subtracted. `hi` of a sum is the exact sum, rounded once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.int32]
Flags = NDArray[np.bool_]

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
def sum_by_group(hi: Floats, lo: Floats, group: Ints, groups: int) -> tuple[Floats, Floats, bool]:
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
def squares(values: Floats) -> tuple[Floats, Floats]:
    hi, lo = np.empty(len(values)), np.empty(len(values))
    for i in range(len(values)):
        hi[i], lo[i] = two_product(values[i], values[i])
    return hi, lo


@kernel
def prefixes(hi: Floats, lo: Floats, begin: Ints) -> tuple[Floats, Floats, bool]:
    """Return the prefix sums of each key.

    The sums of key k start at begin[k] + k, because each key has one sum more than entries.
    """
    keys = len(begin) - 1
    high, low, exact = np.zeros(len(hi) + keys + 1), np.zeros(len(hi) + keys + 1), True
    for k in range(keys):
        h, rest = 0.0, 0.0
        for i in range(begin[k], begin[k + 1]):
            h, rest, ok = _add(h, rest, hi[i])
            if lo[i] != 0.0:
                h, rest, again = _add(h, rest, lo[i])
                ok = ok and again
            exact = exact and ok
            high[i + k + 1], low[i + k + 1] = h, rest
    return high, low, exact


@kernel
def differences(
    high: Floats, low: Floats, lo: Places, hi: Places, rank: Places
) -> tuple[Floats, Floats, Flags]:
    """Return each span's sum, flagged if two doubles cannot represent it."""
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
def quotients(hi: Floats, lo: Floats, count: Ints) -> tuple[Floats, Flags]:
    """Return each sum over its count, rounded once.

    The flag is set if the last bit is in doubt.
    """
    out, doubt = np.empty(len(hi)), np.zeros(len(hi), np.bool_)
    for i in range(len(hi)):
        n = float(max(count[i], 1))
        q = hi[i] / n
        p, e = two_product(q, n)
        left, lost = two_sum((hi[i] - p) - e, lo[i])
        rest = left / n
        out[i] = q + rest
        # If the previous steps were exact, as for half of a sum, the last addition rounds an exact value.
        p, e = two_product(rest, n)
        if lost != 0.0 or p != left or e != 0.0:
            doubt[i] = q + rest * (1.0 - _DOUBT) != q + rest * (1.0 + _DOUBT)
        doubt[i] = doubt[i] or not abs(hi[i]) < 1e290 or 0.0 < abs(hi[i]) < 1e-250
    return out, doubt
