"""Scalar functions of CREATE MODEL, and evaluation of expressions, exact for rational values.

A value is a Fraction, a float, a bool or None. None stands for an undefined value (1/0, log 0), and for any
value that is computed from an undefined value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from slicemill.extensions.models.terms import PI, Apply, Expr, ModelError, Number, Parameter, Symbol

Value: TypeAlias = Fraction | float | bool | None


@dataclass(frozen=True, slots=True)
class ModelFunction:
    takes: tuple[int, ...]
    compute: Callable[..., Any]


def exact(value: object) -> Value:
    """Convert a number to a Fraction. Return None if the number is not finite."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        return Fraction(value)
    plain = float(value)  # type: ignore[arg-type]
    return Fraction(plain) if math.isfinite(plain) else None


def _none_if_undefined(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to return None for errors and non-finite values."""

    def checked(*values: Any) -> Any:
        try:
            result = compute(*values)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        # Only floats can be infinite. A fraction that exceeds the range of a float is a valid number.
        undefined = isinstance(result, complex) or (isinstance(result, float) and not math.isfinite(result))
        return None if undefined else result

    return checked


def power(base: Any, exponent: Any) -> Any:
    """Raise a number to a power, exactly for integer exponents. Roots of negative numbers have no value."""
    if isinstance(exponent, Fraction) and exponent.denominator == 1 and abs(exponent) <= 4096:
        return base ** int(exponent)
    return float(base) ** float(exponent)


def root(value: Any) -> Any:
    """Return the square root of a number, exactly if the root is rational."""
    if isinstance(value, Fraction) and value >= 0:
        above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if above**2 == value.numerator and below**2 == value.denominator:
            return Fraction(above, below)
    return math.sqrt(value)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "^": power,
    "neg": operator.neg,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "not": operator.not_,
    "and": lambda left, right: bool(left and right),
    "or": lambda left, right: bool(left or right),
}

FUNCTIONS: dict[str, ModelFunction] = {
    "sqrt": ModelFunction((1,), root),
    "abs": ModelFunction((1,), abs),
    "sign": ModelFunction((1,), lambda x: Fraction((x > 0) - (x < 0))),
    "floor": ModelFunction((1,), lambda x: Fraction(math.floor(x))),
    "ceil": ModelFunction((1,), lambda x: Fraction(math.ceil(x))),
    "log": ModelFunction((1,), math.log),
    "exp": ModelFunction((1,), math.exp),
    "sin": ModelFunction((1,), math.sin),
    "cos": ModelFunction((1,), math.cos),
    "nonnegative": ModelFunction((1,), lambda x: max(x, Fraction(0))),
    "where": ModelFunction((3,), lambda condition, yes, no: yes if condition else no),
}

_ALL = {name: _none_if_undefined(compute) for name, compute in _OPERATORS.items()}
_ALL |= {name: _none_if_undefined(function.compute) for name, function in FUNCTIONS.items()}


def evaluate(expr: Expr, names: Mapping[str, Value]) -> Value:
    """Evaluate an expression whose columns and symbols have the values in `names`.

    >>> from slicemill.extensions.models.parse import parse
    >>> evaluate(parse("x^2 + 1/x"), {"x": Fraction(2)})
    Fraction(9, 2)
    """
    match expr:
        case Number(value):
            return value
        case Parameter(name) | Symbol(name) if name in names:
            return names[name]
        case Symbol() if expr == PI:
            return math.pi
        case Apply("where", (condition, yes, no)):
            # Only the chosen branch needs a value.
            chosen = evaluate(condition, names)
            return None if chosen is None else evaluate(yes if chosen else no, names)
        case Apply(function, arguments):
            values = [evaluate(argument, names) for argument in arguments]
            if any(value is None for value in values):
                return None
            result: Value = _ALL[function](*values)
            return result
    raise ModelError(f"{expr} has no value here")
