"""Statistics that are defined as formulas of sums.

They are expanded before all other steps. So `variance(x)` and `mean(x)` in one model share Σx and n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slicemill.argument_range import ArgumentRange
from slicemill.model.terms import (
    CONDITIONS,
    DIMENSION,
    ONE,
    ZERO,
    Apply,
    Expr,
    Number,
    WindowAggregation,
    number,
)

Args = Sequence[Expr]
N = DIMENSION


@dataclass(frozen=True, slots=True)
class Macro:
    """A statistic; `ranges` are the valid ranges of constant arguments, by position."""

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
    """Return n²·cov(x, y), which is an integer for integers."""
    return _minus(_times(N, _sum(_times(x, y))), _times(_sum(x), _sum(y)))


def _spread(x: Expr) -> Expr:
    """Return n²·var(x), which rounding never makes negative (C24)."""
    return Apply("nonnegative", (_scatter(x, x),))


def _less_one() -> Expr:
    return _times(N, _minus(N, ONE))


def _count(args: Args) -> Expr:
    """Count the elements that satisfy a condition; for other arguments, all elements."""
    (of,) = args
    holds = isinstance(of, Apply) and of.function in CONDITIONS
    return _sum(Apply("where", (of, ONE, ZERO))) if holds else N


def _norm(args: Args) -> Expr:
    """Return the L_p norm of absolute values."""
    x, p = args
    assert isinstance(p, Number), "the parser has looked"
    even = p.value.denominator == 1 and p.value.numerator % 2 == 0
    of = Apply("^", (x if even else Apply("abs", (x,)), p))
    return Apply("^", (_sum(of), _over(ONE, p))) if p.value != 2 else _root(_sum(of))


def _slope(args: Args) -> Expr:
    return _over(_scatter(args[0], args[1]), _spread(args[0]))


def _intercept(args: Args) -> Expr:
    """Return the intercept computed from the means.

    Only the means change when x or y is shifted (see `centring`).
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
