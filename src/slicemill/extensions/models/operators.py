"""Aggregates that models may use: accumulators such as sum (C8), and searches such as max (C7).

An accumulator combines all elements of a window with an operator ⊕. A search finds one element of the window.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

from slicemill.catalog.argument_range import ArgumentRange


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Accumulator: an operator ⊕ that combines elements, its identity, and its inverse if it has one.

    `symbol` is the symbol of ⊕. Some operators have an inverse only on a larger domain: a product must count
    its zeros. `lift` maps an element to that domain, `lower` maps back. `counter` names the counted elements.
    With `exact`, there are no rounding errors.
    """

    symbol: str
    combine: Callable[[Any, Any], Any]
    identity: Any
    inverse: Callable[[Any], Any] | None = None
    commutative: bool = True
    associative: bool = True
    lift: Callable[[Any], Any] = _same
    lower: Callable[[Any], Any] = _same
    counter: str = ""
    exact: bool = False

    @property
    def reversible(self) -> bool:
        return self.inverse is not None

    def combined(self, lifted: Iterable[Any]) -> Any:
        return reduce(self.combine, lifted, self.identity)

    def fold(self, values: Iterable[Any]) -> Any:
        """Combine the values of a window with the operator. An empty window yields the identity."""
        return self.lower(self.combined(map(self.lift, values)))


def _gcd(left: Any, right: Any) -> Fraction:
    return Fraction(math.gcd(int(left), int(right)))


def _xor(left: Any, right: Any) -> Fraction:
    return Fraction(int(left) ^ int(right))


def _pairs(left: Any, right: Any) -> Any:
    return left[0] * right[0], left[1] + right[1]


def _is_false(value: Any) -> int:
    return int(not value)


def _is_true(value: Any) -> int:
    return int(bool(value))


_PRODUCT = Accumulation(
    "×",
    _pairs,
    (Fraction(1), 0),
    lambda pair: (1 / pair[0], -pair[1]),
    lift=lambda x: (Fraction(1), 1) if x == 0 else (x, 0),
    lower=lambda pair: Fraction(0) if pair[1] else pair[0],
    counter="zeros",
)
_ALL = Accumulation(
    "and",
    operator.add,
    0,
    operator.neg,
    lift=_is_false,
    lower=lambda count: count == 0,
    counter="elements that are false",
    exact=True,
)
_ANY = Accumulation(
    "or",
    operator.add,
    0,
    operator.neg,
    lift=_is_true,
    lower=lambda count: count > 0,
    counter="elements that are true",
    exact=True,
)

ACCUMULATORS: dict[str, Accumulation] = {
    "sum": Accumulation("+", operator.add, Fraction(0), operator.neg),
    "prod": _PRODUCT,
    "xor": Accumulation("xor", _xor, Fraction(0), _same, exact=True),
    "all": _ALL,
    "any": _ANY,
    "gcd": Accumulation("gcd", _gcd, Fraction(0), exact=True),
}


@dataclass(frozen=True, slots=True)
class Search:
    """Aggregate that finds one element of a window, such as max, first or median.

    `find` returns the element or None. `memory` describes the state for incremental updates, and `structure`
    names the data structure. `options` are the valid ranges of the constants after the argument.
    """

    find: Callable[..., Any]
    memory: str
    structure: str
    options: tuple[ArgumentRange, ...] = ()
    # True if max(f(x)) is f(max(x)) for an increasing function f (rule R7).
    ordered: bool = False


def quantile(values: Sequence[Any], share: Fraction) -> Any:
    """Return the quantile of values, interpolated linearly between the two nearest elements."""
    if not values:
        return None
    ordered = sorted(values)
    index = (len(ordered) - 1) * share
    below = math.floor(index)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (index - below)


def median(values: Sequence[Any]) -> Any:
    return quantile(values, Fraction(1, 2))


def nth_greatest(values: Sequence[Any], count: Fraction) -> Any:
    ordered = sorted(values, reverse=True)
    return ordered[int(count) - 1] if 1 <= count <= len(ordered) else None


def _greatest(values: Sequence[Any]) -> Any:
    return max(values, default=None)


def _least(values: Sequence[Any]) -> Any:
    return min(values, default=None)


def _first(values: Sequence[Any]) -> Any:
    return values[0] if values else None


def _last(values: Sequence[Any]) -> Any:
    return values[-1] if values else None


def _position_of_greatest(values: Sequence[Any]) -> Any:
    return Fraction(values.index(max(values)) + 1) if values else None


def _position_of_least(values: Sequence[Any]) -> Any:
    return Fraction(values.index(min(values)) + 1) if values else None


def _before_the_newest(values: Sequence[Any], count: Fraction) -> Any:
    return values[-1 - int(count)] if count < len(values) else None


DEQUE, QUEUE, RANKED = "deque", "queue", "two heaps"

# Share of quantile(x, share). Its denominator times the number of elements must fit into 64 bits.
_SHARE = ArgumentRange(
    "a number between 0 and 1, of at most 9 digits",
    lambda share: 0 <= share <= 1 and share.denominator <= 10**9,
    lambda share: f"the nearest is {float(max(Fraction(0), min(Fraction(1), round(share, 9)))):.9g}",
)
_RANK = ArgumentRange(
    "a whole number from 1 on",
    lambda rank: 1 <= rank < 2**31 and rank.denominator == 1,
    lambda _rank: "1 is the greatest, 2 the one after it",
)
_BACK = ArgumentRange(
    "a whole number from 0 on",
    lambda back: 0 <= back < 2**31 and back.denominator == 1,
    lambda _back: "0 is the newest element, 1 the one before it",
)

SEARCHES: dict[str, Search] = {
    "max": Search(_greatest, "a deque of candidates, at most n", DEQUE, ordered=True),
    "min": Search(_least, "a deque of candidates, at most n", DEQUE, ordered=True),
    "argmax": Search(_position_of_greatest, "a deque of candidates, at most n", DEQUE),
    "argmin": Search(_position_of_least, "a deque of candidates, at most n", DEQUE),
    "first": Search(_first, "a queue of the elements, n", QUEUE),
    "last": Search(_last, "a queue of the elements, n", QUEUE),
    "lag": Search(_before_the_newest, "a queue of the elements, n", QUEUE, options=(_BACK,)),
    "median": Search(median, "two heaps of the elements, n", RANKED),
    "quantile": Search(quantile, "two heaps of the elements, n", RANKED, options=(_SHARE,)),
    "topk": Search(nth_greatest, "two heaps of the elements, n", RANKED, options=(_RANK,)),
}
