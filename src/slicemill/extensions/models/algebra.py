"""Normal form of model formulas as sums of products, so that equal formulas are recognised.

A polynomial is a sum of monomials with rational factors. A monomial is a product of integer powers of atoms.
An atom is a column, a symbol, or an expression that is not expanded, such as sqrt(x + 1). `x*y` and `y*x`,
`x*x` and `x^2`, `(x - m)^2` and `x^2 - 2*m*x + m^2` have the same normal form. As usual in algebra, `x/x` is
1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from slicemill.extensions.models.terms import ONE, ZERO, Apply, Expr, Number, expression_text, number

Monomial: TypeAlias = tuple[tuple[Expr, int], ...]

# Products of sums are expanded up to this number of terms.
MOST_TERMS = 64
_MOST_POWER = 16


@dataclass(frozen=True, slots=True)
class Polynomial:
    terms: tuple[tuple[Monomial, Fraction], ...]

    @staticmethod
    def of(pairs: Iterable[tuple[Monomial, Fraction]]) -> Polynomial:
        factors: dict[Monomial, Fraction] = {}
        for monomial, factor in pairs:
            factors[monomial] = factors.get(monomial, Fraction(0)) + factor
        terms = [(monomial, factor) for monomial, factor in factors.items() if factor]
        return Polynomial(tuple(sorted(terms, key=_order)))

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of((*self.terms, *other.terms))

    def __mul__(self, other: Polynomial) -> Polynomial:
        return Polynomial.of(
            (product(left, right), first * second)
            for left, first in self.terms
            for right, second in other.terms
        )

    def scaled(self, factor: Fraction) -> Polynomial:
        return Polynomial.of((monomial, each * factor) for monomial, each in self.terms)

    @property
    def constant(self) -> Fraction | None:
        """Return the value of a polynomial without variables, None for other polynomials."""
        if not self.terms:
            return Fraction(0)
        ((monomial, factor), *more) = self.terms
        return factor if not monomial and not more else None

    @property
    def single(self) -> bool:
        return len(self.terms) == 1


def _order(term: tuple[Monomial, Fraction]) -> tuple[int, list[tuple[str, int]]]:
    monomial = term[0]
    degree = sum(power for _, power in monomial)
    return -degree, [(expression_text(atom), -power) for atom, power in monomial]


def product(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    factors = [(atom, power) for atom, power in powers.items() if power]
    return tuple(sorted(factors, key=lambda factor: expression_text(factor[0])))


def _constant(value: Fraction) -> Polynomial:
    return Polynomial.of([((), value)])


def _atom(expr: Expr, power: int = 1) -> Polynomial:
    return Polynomial.of([(((expr, power),), Fraction(1))])


def polynomial(expr: Expr) -> Polynomial:
    """Convert an expression into a polynomial.

    >>> from slicemill.extensions.models.parse import parse
    >>> expression_of(polynomial(parse("(x - 1)^2 + y*x/2")))
    x^2 + 0.5*x*y - 2*x + 1
    """
    match expr:
        case Number(value):
            return _constant(value)
        case Apply("+", (left, right)):
            return polynomial(left) + polynomial(right)
        case Apply("-", (left, right)):
            return polynomial(left) + polynomial(right).scaled(Fraction(-1))
        case Apply("neg", (operand,)):
            return polynomial(operand).scaled(Fraction(-1))
        case Apply("*", (left, right)):
            return _multiply(polynomial(left), polynomial(right))
        case Apply("/", (left, right)):
            return _multiply(polynomial(left), _power(polynomial(right), Fraction(-1)))
        case Apply("^", (base, exponent)):
            return _raise_to(polynomial(base), polynomial(exponent))
        case Apply("exp", (exponent,)):
            return _exponential(polynomial(exponent))
        case Apply(function, arguments):
            return _atom(Apply(function, tuple(canonical(argument) for argument in arguments)))
    return _atom(expr)


def canonical(expr: Expr) -> Expr:
    """Return the normal form of an expression: an expanded sum of products."""
    return expression_of(polynomial(expr))


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    if len(left.terms) * len(right.terms) > MOST_TERMS:
        return _whole(left) * _whole(right)
    return left * right


def _whole(of: Polynomial) -> Polynomial:
    """Convert a polynomial of several terms into one term that is not expanded further."""
    return of if len(of.terms) < 2 else _atom(expression_of(of))


def _power(base: Polynomial, exponent: Fraction) -> Polynomial:
    """Raise a polynomial to a constant power."""
    if exponent.denominator != 1 or abs(exponent) > _MOST_POWER:
        value = base.constant
        if value is not None and value in (0, 1) and exponent > 0:
            return base
        return _atom(Apply("^", (expression_of(base), Number(exponent))))
    count = int(exponent)
    if not base.terms:
        return _constant(Fraction(1 if count == 0 else 0)) if count >= 0 else _atom(ZERO, count)
    if base.single:
        ((monomial, factor),) = base.terms
        return Polynomial.of([(tuple((atom, power * count) for atom, power in monomial), factor**count)])
    if count < 0 or len(base.terms) ** count > MOST_TERMS:
        return _atom(expression_of(base), count)
    result = _constant(Fraction(1))
    for _ in range(count):
        result = result * base
    return result


def _raise_to(base: Polynomial, exponent: Polynomial) -> Polynomial:
    value = exponent.constant
    if value is not None:
        return _power(base, value)
    if base.constant is None:
        return _atom(Apply("^", (expression_of(base), expression_of(exponent))))
    if 0 < base.constant < 1:
        return _raise_to(_power(base, Fraction(-1)), exponent.scaled(Fraction(-1)))
    # c^(i + n) becomes c^i · c^n, so that factors of the position i are apart from factors of the size n.
    result = _constant(Fraction(1))
    for monomial, factor in exponent.terms:
        if not monomial:
            result = result * _power(base, factor)
            continue
        one = Fraction(1)
        whole, power = (factor, one) if factor.denominator == 1 and abs(factor) <= 64 else (one, factor)
        scaled = _power(base, abs(whole))
        name = expression_of(Polynomial.of([(monomial, power)]))
        result = result * _atom(Apply("^", (expression_of(scaled), name)), 1 if whole > 0 else -1)
    return result


def _exponential(exponent: Polynomial) -> Polynomial:
    result = _constant(Fraction(1))
    for monomial, factor in exponent.terms:
        name = expression_of(Polynomial.of([(monomial, abs(factor))]))
        result = result * _atom(Apply("exp", (name,)), 1 if factor > 0 else -1)
    return result


def expression_of(of: Polynomial) -> Expr:
    result: Expr | None = None
    for monomial, factor in of.terms:
        term = monomial_expression(monomial, abs(factor) if result is not None else factor)
        result = term if result is None else Apply("+" if factor > 0 else "-", (result, term))
    return ZERO if result is None else result


def monomial_expression(monomial: Monomial, factor: Fraction = Fraction(1)) -> Expr:
    above = [*_factors(monomial, 1)]
    below = [*_factors(monomial, -1)]
    if factor == -1 and above:
        above[0] = Apply("neg", (above[0],)) if len(above) == 1 and not below else above[0]
        if len(above) > 1 or below:
            above.insert(0, number(-1))
    elif factor != 1 or not above:
        above.insert(0, Number(factor))
    top = _chain(above)
    return top if not below else Apply("/", (top, _chain(below)))


def _factors(monomial: Monomial, sign: int) -> Iterator[Expr]:
    for atom, power in monomial:
        if power * sign > 0:
            yield atom if abs(power) == 1 else Apply("^", (atom, number(abs(power))))


def _chain(factors: list[Expr]) -> Expr:
    result = factors[0] if factors else ONE
    for factor in factors[1:]:
        result = Apply("*", (result, factor))
    return result
