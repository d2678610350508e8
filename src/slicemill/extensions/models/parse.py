"""Parser for the formulas of CREATE MODEL (C20).

    expr := expr (+ - * / % ^) expr | -expr | function(expr, …) | aggregate(expr) | NUMBER | COLUMN
          | n | i | j | age | pi | expr (= <> < <= > >=) expr | expr and expr | expr or expr | not expr
          | let NAME = expr in expr

n is the number of elements (rows) in the window, i the position of an element, j the number of newer
elements, and age its time to the newest element. Other names are columns. `^` binds tightest and is
right-associative, so -x^2 is -(x^2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NoReturn

from slicemill.catalog.argument_range import ArgumentRange
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.scalars import FUNCTIONS
from slicemill.extensions.models.terms import (
    AGE,
    CONDITIONS,
    DIMENSION,
    ONE,
    PI,
    POSITION,
    ZERO,
    Apply,
    Expr,
    Let,
    ModelError,
    Number,
    Parameter,
    Symbol,
    WindowAggregation,
    number,
)

# Names with a fixed meaning in formulas
RESERVED: dict[str, Expr] = {
    "n": DIMENSION,
    "i": POSITION,
    "j": Apply("-", (DIMENSION, POSITION)),
    "age": AGE,
    "pi": PI,
}
_WORDS = frozenset({"let", "in", "and", "or", "not"})
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|<>|!=|\*\*|[-+*/%^(),=<>]))"
)
_BINDING = {"or": 1, "and": 2, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4}
_BINDING |= {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "^": 8}
_NOT, _NEGATION = 3, 7
_SAME = {"!=": "<>", "**": "^"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str, constants: Mapping[str, Fraction] | None = None) -> Expr:
    """Parse the formula of a model. `constants` are named numbers.

    >>> parse("(n*sum(x*y) - sum(x)*sum(y)) / n^2")
    (n*sum(x*y) - sum(x)*sum(y))/n^2
    >>> parse("quantile(x, p)", {"p": Fraction(9, 10)})
    quantile(x, 0.9)
    """
    parser = _Parser(text, constants or {})
    expr = parser.expression(0)
    parser.expect_end()
    return expr


class _Parser:
    def __init__(self, text: str, constants: Mapping[str, Fraction]) -> None:
        self._text = text
        self._constants = constants
        self._tokens = _tokens(text)
        self._index = 0
        self._bound: list[str] = []

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._next
        self._index += token.kind != "end"
        return token

    def _fail(self, message: str, token: _Token, hint: str = "") -> NoReturn:
        found = f"before {token.text!r}" if token.kind != "end" else "at the end"
        full = f"{message} {found}, column {token.at + 1} of the model: {self._text}"
        full += f" ({hint})" if hint else ""
        raise ModelError(full, what=message.rstrip(","), at=token.at, hint=hint)

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.text != text:
            self._fail(f"expected {text!r}", token)

    def expect_end(self) -> None:
        if self._next.kind != "end":
            self._fail("expected an operator or the end", self._next)

    def expression(self, strength: int) -> Expr:
        left = self._operand()
        while (binding := _BINDING.get(self._next.text, -1)) >= max(strength, 0) and binding > 0:
            operator = self._take().text
            # Powers are right-associative, and all other operators are left-associative.
            left = Apply(operator, (left, self.expression(binding + (operator != "^"))))
        return left

    def _operand(self) -> Expr:
        token = self._take()
        if token.kind == "number":
            return Number(Fraction(token.text))
        if token.text == "-":
            return Apply("neg", (self.expression(_NEGATION),))
        if token.text == "+":
            return self.expression(_NEGATION)
        if token.text == "(":
            inner = self.expression(0)
            self._expect(")")
            return inner
        if token.kind != "name":
            self._fail("expected a number, a column or a function", token)
        if token.text == "not":
            return Apply("not", (self.expression(_NOT),))
        if token.text == "let":
            return self._let()
        if self._next.text == "(":
            return self._call(token)
        if token.text in _WORDS:
            self._fail("expected a value", token)
        if token.text in self._bound:
            return Symbol(token.text)
        if token.text in self._constants:
            value = self._constants[token.text]
            return Number(value) if value >= 0 else Apply("neg", (Number(-value),))
        return RESERVED.get(token.text) or Parameter(token.text)

    def _let(self) -> Expr:
        name = self._take()
        taken = any(name.text in known for known in (RESERVED, _WORDS, self._bound, self._constants))
        if name.kind != "name" or taken:
            self._fail("let needs a new name", name)
        self._expect("=")
        value = self.expression(0)
        self._expect("in")
        self._bound.append(name.text)
        body = self.expression(0)
        self._bound.pop()
        return Let(name.text, value, body)

    def _call(self, name: _Token) -> Expr:
        self._expect("(")
        arguments: list[Expr] = []
        begins: list[_Token] = []
        while self._next.text != ")":
            if arguments:
                if self._next.text != ",":
                    self._fail("expected ',' or ')'", self._next)
                self._take()
            begins.append(self._next)
            arguments.append(self.expression(0))
        self._expect(")")
        function = name.text.lower()
        if function == "count" and not arguments:
            return DIMENSION
        if function in MACROS:
            self._check_count(name, len(arguments), MACROS[function].takes)
            for index, range_ in MACROS[function].ranges.items():
                self._constant(arguments[index], name, range_, begins[index])
            return MACROS[function].expand(arguments)
        if function in ACCUMULATORS or function in SEARCHES:
            ranges = SEARCHES[function].options if function in SEARCHES else ()
            self._check_count(name, len(arguments), (1 + len(ranges),))
            given = zip(arguments[1:], ranges, begins[1:], strict=True)
            options = tuple(self._constant(value, name, range_, at) for value, range_, at in given)
            return WindowAggregation(function, arguments[0], options)
        if function in FUNCTIONS:
            self._check_count(name, len(arguments), FUNCTIONS[function].takes)
            return Apply(function, tuple(arguments))
        known = ", ".join(sorted({*MACROS, *ACCUMULATORS, *SEARCHES, *FUNCTIONS}))
        what = f"a model has no function {name.text}"
        raise ModelError(f"{what}, column {name.at + 1}; it has {known}", what=what, at=name.at)

    def _check_count(self, name: _Token, count: int, takes: tuple[int, ...]) -> None:
        if count not in takes:
            wanted = " or ".join(map(str, takes))
            self._fail(f"{name.text} takes {wanted} argument{'s' * (takes != (1,))}, not {count},", name)

    def _constant(self, expr: Expr, name: _Token, range_: ArgumentRange, at: _Token) -> Fraction:
        negated = isinstance(expr, Apply) and expr.function == "neg"
        number = expr.arguments[0] if isinstance(expr, Apply) and negated else expr
        if not isinstance(number, Number):
            self._fail(f"all but the first argument of {name.text} are numbers,", at)
        value = -number.value if negated else number.value
        if not range_.takes(value):
            self._fail(f"{name.text} wants {range_.words} here,", at, range_.hint(value))
        return value


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    index = 0
    while text[index:].strip():
        found = _TOKEN.match(text, index)
        if found is None:
            at = index + len(text[index:]) - len(text[index:].lstrip())
            what = f"a model has no {text[at]!r}"
            raise ModelError(f"{what}, column {at + 1}: {text}", what=what, at=at)
        kind = str(found.lastgroup)
        word = found.group(kind)
        tokens.append(_Token(kind, _SAME.get(word, word), found.start(kind)))
        index = found.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


# Statistics that are defined as formulas of sums, such as mean and variance
#
# The parser expands them. So `variance(x)` and `mean(x)` in one model share Σx and n.


Args = Sequence[Expr]
N = DIMENSION


@dataclass(frozen=True, slots=True)
class Macro:
    """Statistic that the parser expands into a formula of sums, such as variance(x).

    `takes` has the possible numbers of arguments. `ranges` has the valid ranges of constant arguments, by
    position.
    """

    takes: tuple[int, ...]
    expand: Callable[[Args], Expr]
    ranges: Mapping[int, ArgumentRange] = field(default_factory=dict)


def _times(left: Expr, right: Expr) -> Expr:
    return Apply("*", (left, right))


def _minus(left: Expr, right: Expr) -> Expr:
    return Apply("-", (left, right))


def _over(left: Expr, right: Expr) -> Expr:
    return Apply("/", (left, right))


def _sum(expr: Expr) -> Expr:
    return WindowAggregation("sum", expr)


def _root(expr: Expr) -> Expr:
    return Apply("sqrt", (expr,))


def _scatter(x: Expr, y: Expr) -> Expr:
    """Return the formula of n²·cov(x, y), whose value is an integer for integers."""
    return _minus(_times(N, _sum(_times(x, y))), _times(_sum(x), _sum(y)))


def _spread(x: Expr) -> Expr:
    """Return the formula of n²·var(x), whose value is never negative despite rounding (C24)."""
    return Apply("nonnegative", (_scatter(x, x),))


def _less_one() -> Expr:
    return _times(N, _minus(N, ONE))


def _count(args: Args) -> Expr:
    """Return the formula of count(x): rows for which a condition x holds, or all rows for a number x."""
    (of,) = args
    holds = isinstance(of, Apply) and of.function in CONDITIONS
    return _sum(Apply("where", (of, ONE, ZERO))) if holds else N


def _norm(args: Args) -> Expr:
    """Return the formula of norm(x, p), the L_p norm (Σ|x|^p)^(1/p)."""
    x, p = args
    assert isinstance(p, Number), "the parser has checked that p is a number"
    even = p.value.denominator == 1 and p.value.numerator % 2 == 0
    of = Apply("^", (x if even else Apply("abs", (x,)), p))
    return Apply("^", (_sum(of), _over(ONE, p))) if p.value != 2 else _root(_sum(of))


def _slope(args: Args) -> Expr:
    return _over(_scatter(args[0], args[1]), _spread(args[0]))


def _intercept(args: Args) -> Expr:
    """Return the formula of the regression intercept: mean(y) - slope·mean(x).

    When x or y is shifted by a constant, only the means change (see `centre_formula`).
    """
    x, y = args
    moved = Apply("neg", (_times(_slope(args), _over(_sum(x), N)),))
    return Apply("+", (moved, _over(_sum(y), N)))


def _determination(args: Args) -> Expr:
    x, y = args
    return _over(Apply("^", (_scatter(x, y), number(2))), _times(_spread(x), _spread(y)))


def _correlation(args: Args) -> Expr:
    x, y = args
    return _over(_scatter(x, y), _times(_root(_spread(x)), _root(_spread(y))))


def _variance(args: Args) -> Expr:
    return _over(_spread(args[0]), _less_one())


def _variance_of_all(args: Args) -> Expr:
    return _over(_spread(args[0]), Apply("^", (N, number(2))))


_ORDER = ArgumentRange(
    "a number above 0 and up to 1000",
    lambda p: 0 < p <= 1000,
    lambda p: "the greatest of all is max(abs(x))" if p > 0 else "norm(x, 2) is the usual one",
)

MACROS: dict[str, Macro] = {
    "count": Macro((1,), _count),
    "mean": Macro((1,), lambda args: _over(_sum(args[0]), N)),
    "avg": Macro((1,), lambda args: _over(_sum(args[0]), N)),
    "variance": Macro((1,), _variance),
    "var_pop": Macro((1,), _variance_of_all),
    "stddev": Macro((1,), lambda args: _root(_variance(args))),
    "stddev_pop": Macro((1,), lambda args: _root(_variance_of_all(args))),
    "covariance": Macro((2,), lambda args: _over(_scatter(*args), _less_one())),
    "covar_pop": Macro((2,), lambda args: _over(_scatter(*args), Apply("^", (N, number(2))))),
    "correlation": Macro((2,), _correlation),
    "slope": Macro((2,), _slope),
    "intercept": Macro((2,), _intercept),
    "r2": Macro((2,), _determination),
    "norm": Macro((2,), _norm, {1: _ORDER}),
}
