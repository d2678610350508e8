"""Functions of real numbers, with Java's answers where Python raises: NaN out of the domain, infinities."""

from __future__ import annotations

import math
from collections.abc import Callable

from slicemill.scalar.values import Scalar, as_doubles, plain


def _total(function: Callable[[float], float]) -> Scalar:
    """A function that Python defines in part, made whole as IEEE 754 does."""

    def total(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return plain(total, as_doubles)


def _sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _logarithm(function: Callable[[float], float]) -> Scalar:
    """NULL for what has no logarithm, as in Spark and Hive."""
    return plain(lambda value: None if value <= 0 else function(value), as_doubles)


def _log(base: float, value: float | None = None) -> float | None:
    """The natural logarithm, or that to a base."""
    if value is None:
        return None if base <= 0 else math.log(base)
    if base <= 0 or value <= 0:
        return None
    if base == 1:
        above = math.log(value)
        return math.nan if above == 0 or math.isnan(above) else math.copysign(math.inf, above)
    if math.isinf(base) and math.isinf(value):
        return math.nan
    return math.log(value) / math.log(base)


def _power(base: float, exponent: float) -> float:
    # Java differs from C where the base is one in size and the exponent is no number or infinite.
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    odd = exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _atan2(y: float, x: float) -> float:
    return math.atan2(y + 0.0, x + 0.0)  # no negative zeros, as in Spark


MATH: dict[str, Scalar] = {
    "acos": _total(math.acos),
    "asin": _total(math.asin),
    "atan": _total(math.atan),
    "atan2": plain(_atan2, as_doubles),
    "cbrt": _total(math.cbrt),
    "cos": _total(math.cos),
    "cosh": _total(math.cosh),
    "degrees": _total(math.degrees),
    "exp": _total(math.exp),
    "ln": _logarithm(math.log),
    "log": plain(_log, as_doubles),
    "log10": _logarithm(math.log10),
    "log2": _logarithm(math.log2),
    "pow": plain(_power, as_doubles),
    "power": plain(_power, as_doubles),
    "radians": _total(math.radians),
    "sin": _total(math.sin),
    "sinh": plain(_sinh, as_doubles),
    "sqrt": _total(math.sqrt),
    "tan": _total(math.tan),
    "tanh": _total(math.tanh),
}
