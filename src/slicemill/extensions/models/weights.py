"""Weights of weighted sums over a window that can be updated when the window slides (C21).

A weight depends on the position or the age u of an element. It is a sum of terms c·u^r·e^(βu), where r is the
degree and β is complex. Such weights include polynomials, exponentials, sines and cosines, and their
products. The factor e^(βu) is a mode (`Mode`). When u grows by a step, each term becomes a linear combination
of terms with the same mode and with degrees up to r. So the sum Σ u^r e^(βu) x can be updated without reading
the window again. Weights with this property are called closed under shifts.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from fractions import Fraction

from slicemill.extensions.models.algebra import Monomial, polynomial
from slicemill.extensions.models.terms import PI, Apply, Expr, Number, Symbol, walk


@dataclass(frozen=True, slots=True)
class Mode:
    """Exponential factor e^(βu) of a weight, where u is the position or age of an element.

    β = log(base) + rate + 2πj·turns + j·frequency, where j is the imaginary unit. The fields are exact, so
    that equal modes are recognised.
    """

    base: Fraction = Fraction(1)
    rate: Fraction = Fraction(0)
    turns: Fraction = Fraction(0)
    frequency: Fraction = Fraction(0)

    def __mul__(self, other: Mode) -> Mode:
        return Mode(
            self.base * other.base,
            self.rate + other.rate,
            # A full turn is 1 for integer positions, but not for ages, so it must not be removed.
            self.turns + other.turns,
            self.frequency + other.frequency,
        )

    @property
    def growth(self) -> float:
        """Return the real part of β in the factor e^(βu)."""
        return math.log(self.base) + float(self.rate)

    @property
    def angle(self) -> float:
        """Return the imaginary part of β in the factor e^(βu): the angle per step of u."""
        return 2 * math.pi * float(self.turns) + float(self.frequency)

    @property
    def turning(self) -> bool:
        return self.turns != 0 or self.frequency != 0

    def inverse(self) -> Mode:
        return Mode(1 / self.base, -self.rate, -self.turns, -self.frequency)

    def conjugate(self) -> Mode:
        return Mode(self.base, self.rate, -self.turns, -self.frequency)

    def at(self, u: float) -> complex:
        return cmath.exp(complex(self.growth, self.angle) * u)


@dataclass(frozen=True, slots=True)
class Term:
    """Term of a weight: factor·u^degree·e^(βu), where u is the position or age of an element."""

    factor: complex
    degree: int
    mode: Mode


@dataclass(frozen=True, slots=True)
class Weight:
    """Weight of an element as a sum of terms, a function of `variable`.

    The variable is the position i from the oldest element, the position j from the newest element, or the
    age. Complex terms occur together with their conjugates, so the weight is real.
    """

    variable: Symbol
    terms: tuple[Term, ...]

    def at(self, u: float) -> float:
        return sum(term.factor * u**term.degree * term.mode.at(u) for term in self.terms).real

    @property
    def modes(self) -> dict[Mode, int]:
        """Return the distinct factors e^(βu) of the weight, each with the greatest power of u.

        Of two complex conjugate factors only one is returned.
        """
        degrees: dict[Mode, int] = {}
        for term in self.terms:
            if term.mode.conjugate() in degrees and term.mode.turning:
                continue
            degrees[term.mode] = max(term.degree, degrees.get(term.mode, 0))
        return degrees

    @property
    def state(self) -> int:
        """Return the number of sums to store for this weight. A complex sum counts once."""
        return sum(degree + 1 for degree in self.modes.values())

    @property
    def growing(self) -> bool:
        return any(mode.growth > 1e-12 for mode in self.modes)

    @property
    def modes_turn(self) -> bool:
        return any(mode.turning for mode in self.modes)

    @property
    def shrinking(self) -> bool:
        return any(mode.growth < -1e-12 for mode in self.modes)


def weight_of(monomial: Monomial, variable: Symbol) -> Weight | None:
    """Convert a product of powers, such as i^2·cos(pi·i), into a weight.

    Return None if a sum with this weight cannot be updated when the window slides.

    >>> from slicemill.extensions.models.parse import parse
    >>> from slicemill.extensions.models.terms import POSITION
    >>> weight = weight_of(polynomial(parse("i^2 * cos(pi*i)")).terms[0][0], POSITION)
    >>> weight.state, weight.at(3)
    (3, -9.0)
    """
    terms: tuple[Term, ...] = (Term(1, 0, Mode()),)
    for atom, power in monomial:
        factor = _factor(atom, variable)
        if factor is None:
            return None
        if power < 0:
            if len(factor) > 1 or factor[0].degree:
                return None
            factor = (Term(1 / factor[0].factor, 0, factor[0].mode.inverse()),)
        for _ in range(abs(power)):
            terms = _product(terms, factor)
    return Weight(variable, _merge_terms(terms))


def _product(left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(Term(a.factor * b.factor, a.degree + b.degree, a.mode * b.mode) for a in left for b in right)


def _merge_terms(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    factors: dict[tuple[int, Mode], complex] = {}
    for term in terms:
        key = (term.degree, term.mode)
        factors[key] = factors.get(key, 0) + term.factor
    return tuple(Term(factor, degree, mode) for (degree, mode), factor in factors.items() if factor)


def _factor(atom: Expr, variable: Symbol) -> tuple[Term, ...] | None:
    if atom == variable:
        return (Term(1, 1, Mode()),)
    match atom:
        case Apply("^", (Number(base), exponent)) if base != 0:
            line = _line(exponent, variable)
            return None if line is None else _power(base, line)
        case Apply("exp", (exponent,)):
            line = _line(exponent, variable)
            if line is None or line.turns:
                return None
            return (Term(math.exp(line.start), 0, Mode(rate=line.slope)),)
        case Apply("cos" | "sin" as name, (argument,)):
            line = _line(argument, variable)
            return None if line is None else _wave(name, line)
    return None


def _power(base: Fraction, line: _LinearForm) -> tuple[Term, ...] | None:
    if line.turns or (base < 0 and line.slope.denominator != 1) or line.start:
        return None
    if line.slope.denominator == 1:
        turns = Fraction(1, 2) * line.slope if base < 0 else Fraction(0)
        return (Term(1, 0, Mode(base=abs(base) ** int(line.slope), turns=turns)),)
    return (Term(1, 0, Mode(rate=Fraction(math.log(base)) * line.slope)),)


def _wave(name: str, line: _LinearForm) -> tuple[Term, ...]:
    """Convert a cosine or sine of a linear form into two complex exponential terms.

    cos a = (e^ja + e^-ja)/2, and sin a = (e^ja - e^-ja)/2j, where j is the imaginary unit.
    """
    mode = Mode(turns=line.turns / 2, frequency=line.slope)
    half = cmath.exp(1j * line.start) / (2j if name == "sin" else 2)
    return (Term(half, 0, mode), Term(half.conjugate(), 0, mode.conjugate()))


@dataclass(frozen=True, slots=True)
class _LinearForm:
    """Linear form slope·u + turns·π·u + start of a variable u, the argument of exp, cos or sin."""

    slope: Fraction
    turns: Fraction
    start: float


def _line(expr: Expr, variable: Symbol) -> _LinearForm | None:
    slope, turns, start = Fraction(0), Fraction(0), 0.0
    for monomial, factor in polynomial(expr).terms:
        powers = dict(monomial)
        if any(power != 1 for power in powers.values()) or set(powers) - {variable, PI}:
            return None
        if set(powers) == {variable, PI}:
            turns += factor
        elif variable in powers:
            slope += factor
        else:
            start += float(factor) * (math.pi if PI in powers else 1)
    return _LinearForm(slope, turns, start)


def symbols_of(expr: Expr) -> frozenset[str]:
    return frozenset(part.name for part in walk(expr) if isinstance(part, Symbol) and part != PI)
