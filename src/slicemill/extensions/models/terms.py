"""Expression trees of CREATE MODEL formulas (C20).

An expression over the elements of a window (inside an aggregate) has the same Python type as an expression
over values of the window (outside of aggregates).

>>> add(Parameter("x"), Number(Fraction(1, 2)))
x + 0.5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from slicemill.errors import SlicemillError


class ModelError(SlicemillError):
    """Error in the text of a model. The message says what to write instead.

    `at` is the position of the error in the text, or None if unknown. `what` is the message without position
    and hint.
    """

    def __init__(
        self, message: str, *, what: str | None = None, at: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.what = message if what is None else what
        self.at = at
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Number:
    value: Fraction

    def __repr__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a model: a column of each element of the window."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Symbol:
    """Name with a meaning: `n` (number of elements), `i` (position), `age`, `pi`, or a `let` name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Apply:
    """Call of a scalar function or operator, such as `+`, `neg`, `<` or `sqrt`."""

    function: str
    arguments: tuple[Expr, ...]

    def __repr__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class WindowAggregation:
    """Aggregate over the window, such as `sum(x^2)`. `options` are constants, as in `quantile(x, 0.9)`."""

    name: str
    argument: Expr
    options: tuple[Fraction, ...] = ()

    def __repr__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expr
    body: Expr

    def __repr__(self) -> str:
        return expression_text(self)


Expr: TypeAlias = Number | Parameter | Symbol | Apply | WindowAggregation | Let

DIMENSION, POSITION, AGE, PI = Symbol("n"), Symbol("i"), Symbol("age"), Symbol("pi")
FROM_NEWEST = Symbol("j")  # number of newer elements, n - i
ZERO, ONE = Number(Fraction(0)), Number(Fraction(1))

_STRENGTH = {"or": 1, "and": 2, "not": 3, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4}
_STRENGTH |= {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "neg": 7, "^": 8}
_STRONGEST = 9
INFIX = frozenset(_STRENGTH) - {"neg", "not"}
CONDITIONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "and", "or", "not"})


def number(value: Fraction | int) -> Number:
    return Number(Fraction(value))


def add(left: Expr, right: Expr) -> Expr:
    return Apply("+", (left, right))


def multiply(left: Expr, right: Expr) -> Expr:
    return Apply("*", (left, right))


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Apply):
        return expr.arguments
    if isinstance(expr, WindowAggregation):
        return (expr.argument,)
    return (expr.value, expr.body) if isinstance(expr, Let) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all its subexpressions."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def replace_parts(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace subexpressions bottom-up by the results of `change`. None keeps a subexpression."""
    if isinstance(expr, Apply):
        expr = Apply(expr.function, tuple(replace_parts(child, change) for child in expr.arguments))
    elif isinstance(expr, WindowAggregation):
        expr = WindowAggregation(expr.name, replace_parts(expr.argument, change), expr.options)
    elif isinstance(expr, Let):
        expr = Let(expr.name, replace_parts(expr.value, change), replace_parts(expr.body, change))
    changed = change(expr)
    return expr if changed is None else changed


def expression_text(expr: Expr) -> str:
    """Return an expression as text, in the syntax of CREATE MODEL."""
    return _text(expr)[0]


def _text(expr: Expr) -> tuple[str, int]:
    """Return the text of an expression and the binding strength of its outermost operator."""
    match expr:
        case Number(value):
            if value.denominator == 1:
                return str(value.numerator), _STRONGEST if value >= 0 else _STRENGTH["neg"]
            return _fraction(value)
        case Parameter(name) | Symbol(name):
            return name, _STRONGEST
        case WindowAggregation(name, argument, options):
            if "·" in name:  # a chain of operator letters, such as Ac[+] · T[x^2]
                return name if argument == Parameter(
                    "x"
                ) else f"{name} = {expression_text(argument)}", _STRONGEST
            return (
                f"{name}({', '.join([expression_text(argument), *map(plain_number, options)])})",
                _STRONGEST,
            )
        case Let(name, value, body):
            return f"let {name} = {expression_text(value)} in {expression_text(body)}", 0
        case Apply("neg", (operand,)):
            return f"-{_parenthesize(operand, _STRENGTH['neg'])}", _STRENGTH["neg"]
        case Apply("not", (operand,)):
            return f"not {_parenthesize(operand, _STRENGTH['not'])}", _STRENGTH["not"]
        case Apply(function, (left, right)) if function in INFIX:
            strength = _STRENGTH[function]
            tighter = function == "^"
            first = _parenthesize(left, strength + tighter)
            second = _parenthesize(right, strength + (function not in ("+", "*", "and", "or", "^")))
            space = "" if strength >= _STRENGTH["*"] else " "
            return f"{first}{space}{function}{space}{second}", strength
        case Apply(function, arguments):
            return f"{function}({', '.join(map(expression_text, arguments))})", _STRONGEST


def _parenthesize(expr: Expr, strength: int) -> str:
    text, binding = _text(expr)
    return text if binding >= strength else f"({text})"


def _fraction(value: Fraction) -> tuple[str, int]:
    plain = plain_number(value)
    if "/" in plain:
        return plain, _STRENGTH["*"]
    return plain, _STRONGEST if value >= 0 else _STRENGTH["neg"]


def plain_number(value: Fraction) -> str:
    """Return a number as a short decimal if the decimal is exact, otherwise as a fraction."""
    near = repr(float(value)) if abs(value) < 10**15 else str(value)
    if "e" not in near and len(near) <= 8 and Fraction(near) == value:
        return near.removesuffix(".0")
    return f"{value.numerator}/{value.denominator}" if value.denominator != 1 else str(value.numerator)
