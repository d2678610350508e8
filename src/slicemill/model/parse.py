"""Parser of model texts (C20).

    expr := expr (+ - * / % ^) expr | -expr | function(expr, …) | aggregate(expr) | NUMBER | COLUMN
          | n | i | j | age | pi | expr (= <> < <= > >=) expr | expr and expr | expr or expr | not expr
          | let NAME = expr in expr

`^` binds tightest and is right-associative, so -x^2 is -(x^2). Names without a meaning are columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from slicemill.argument_range import ArgumentRange
from slicemill.model.macros import MACROS
from slicemill.model.operators import ACCUMULATORS, SEARCHES
from slicemill.model.scalars import FUNCTIONS
from slicemill.model.terms import (
    AGE,
    DIMENSION,
    PI,
    POSITION,
    Apply,
    Expr,
    Let,
    ModelError,
    Number,
    Parameter,
    Symbol,
    WindowAggregation,
)

# j is n - i, the number of newer elements.
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
    """Parse a model; `constants` are named numbers.

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
        self._place = 0
        self._bound: list[str] = []

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _fail(self, message: str, token: _Token, hint: str = "") -> NoReturn:
        found = f"before {token.text!r}" if token.kind != "end" else "at the end"
        told = f"{message} {found}, column {token.at + 1} of the model: {self._text}"
        told += f" ({hint})" if hint else ""
        raise ModelError(told, what=message.rstrip(","), at=token.at, hint=hint)

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
            # Powers are right-associative, other operators left-associative.
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
            for place, range_ in MACROS[function].ranges.items():
                self._constant(arguments[place], name, range_, begins[place])
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
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            at = place + len(text[place:]) - len(text[place:].lstrip())
            what = f"a model has no {text[at]!r}"
            raise ModelError(f"{what}, column {at + 1}: {text}", what=what, at=at)
        kind = str(found.lastgroup)
        word = found.group(kind)
        tokens.append(_Token(kind, _SAME.get(word, word), found.start(kind)))
        place = found.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens
