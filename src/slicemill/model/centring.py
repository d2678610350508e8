"""Centring: computes shift-invariant formulas from distances to a pivot (C24).

n·Σx² - (Σx)² is equal for x and for x - p, for any p. With a pivot p among the elements, the sums of powers
are small and do not cancel: 1e9 + noise has the kurtosis of the noise. A mean is not shift-invariant and is
computed from Σx itself.

In a formula, `c3` is the value of core 3. `d3` is the value of the same core over distances from the pivots.
`u3` is that of a core of first degree, which needs no sum of its own: Σ(x - p) is Σx - n·p.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product as combinations
from math import comb

from slicemill.model.algebra import Monomial, monomial_expression, polynomial
from slicemill.model.core import Core
from slicemill.model.terms import (  # fmt: skip
    DIMENSION,
    ONE,
    ZERO,
    Apply,
    Expr,
    Symbol,
    add,
    multiply,
    number,
    shown,
    transformed,
    walk,
)

_PIVOT = "pivot of "


def powers(core: Core) -> Monomial | None:
    """Return a core's summand as a product of integer powers, else None."""
    if core.aggregate != "sum" or core.weight is not None or core.blocked or core.transform == ONE:
        return None
    ((monomial, factor), *more) = polynomial(core.transform).terms
    plain = not more and factor == 1 and all(power > 0 for _, power in monomial)
    return monomial if plain and monomial else None


def degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def centred(expr: Expr, cores: Sequence[Core]) -> Expr:
    """Rewrite the shift-invariant parts of a formula to distances from pivots.

    >>> from slicemill.model import expression
    >>> model = expression("mean(x) + var_pop(x)")
    >>> [str(core) for core in model.cores], centred(model.result, model.cores)
    (['sum(x)', 'sum(1)', 'sum(x^2)'], c0/c1 + nonnegative(c1*d2 - u0*u0)/c1^2)
    """
    if not isinstance(expr, Apply) or not any(_degree(part, cores) > 1 for part in walk(expr)):
        return expr
    if _is_unmoved(expr, tuple(cores)):
        return transformed(expr, lambda part: _near(part, cores))
    return Apply(expr.function, tuple(centred(argument, cores) for argument in expr.arguments))


def core_number(expr: Expr) -> int | None:
    """Return the number of the core that a symbol refers to."""
    if isinstance(expr, Symbol) and expr.name[0] in "cdu" and expr.name[1:].isdigit():
        return int(expr.name[1:])
    return None


def _degree(expr: Expr, cores: Sequence[Core]) -> int:
    found = core_number(expr)
    monomial = None if found is None else powers(cores[found])
    return 0 if monomial is None else degree(monomial)


def _near(expr: Expr, cores: Sequence[Core]) -> Expr | None:
    found = _degree(expr, cores)
    return None if not found else Symbol(f"{'u' if found == 1 else 'd'}{core_number(expr)}")


@cache
def _is_unmoved(expr: Expr, cores: tuple[Core, ...]) -> bool:
    """Return True if the pivots cancel."""
    moved = transformed(expr, lambda part: _moved(part, cores))
    return not any(
        isinstance(part, Symbol) and part.name.startswith(_PIVOT)
        for monomial, _ in polynomial(moved).terms
        for atom, _ in monomial
        for part in walk(atom)
    )


def _moved(expr: Expr, cores: Sequence[Core]) -> Expr | None:
    """Expand a core's sum for elements shifted by their pivots."""
    found = core_number(expr)
    if found is None:
        return None
    if cores[found].counts:
        return DIMENSION
    monomial = powers(cores[found])
    if monomial is None:
        return None
    result: Expr = ZERO
    for left in combinations(*(range(power + 1) for _, power in monomial)):
        of = tuple((atom, kept) for (atom, _), kept in zip(monomial, left, strict=True) if kept)
        term: Expr = Symbol(f"sum of {shown(monomial_expression(of))}") if of else DIMENSION
        for (atom, power), kept in zip(monomial, left, strict=True):
            if kept < power:
                moved_by = Apply("^", (Symbol(f"{_PIVOT}{shown(atom)}"), number(power - kept)))
                term = multiply(multiply(number(comb(power, kept)), moved_by), term)
        result = add(result, term)
    return result
