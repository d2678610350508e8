"""Windows as vectors, and operators on vectors (C3-C9).

Vectors are tuples, the oldest element first. An element is a value, or a tuple of values for several
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.terms import ModelError

Vector: TypeAlias = tuple[Any, ...]
Function: TypeAlias = Callable[[Any], Any]


def filter_oldest(vector: Vector, count: int) -> tuple[Vector, Vector]:
    """F[oldest d | rest]: split off the oldest elements.

    >>> filter_oldest((1, 2, 3), 1)
    ((1,), (2, 3))
    """
    if count > len(vector):
        raise ModelError(f"F[oldest {count}] of a vector of dimension {len(vector)}: there are not as many")
    return vector[:count], vector[count:]


def filter_where(vector: Vector, *selectors: Function) -> tuple[Vector, ...]:
    """F by predicates: return one sub-vector per predicate. The sub-vectors may overlap."""
    return tuple(tuple(element for element in vector if selects(element)) for selects in selectors)


def merge(first: Vector, second: Vector) -> Vector:
    """M: append the second vector to the first.

    >>> merge((2, 3), (1, 2))
    (2, 3, 1, 2)
    """
    return (*first, *second)


def zipped(first: Vector, second: Vector) -> Vector:
    """Z, an extension for two streams (C23): pair elements by position."""
    if len(first) != len(second):
        raise ModelError(
            f"Z pairs vectors of equal dimension, not {len(first)} and {len(second)}: align the streams first"
        )
    return tuple(zip(first, second, strict=True))


def transform(
    vector: Vector, functions: Sequence[Function], *, tail: bool = False, lenient: bool = False
) -> Vector:
    """T: apply a function per position. With `tail`, the last function applies to all further positions.

    A single function with a tail is a uniform transform.

    >>> transform((3, 4, 5), [lambda x: x * x, lambda x: x + 1], tail=True)
    (9, 5, 6)
    """
    short = len(vector) - len(functions)
    if short > 0 and not tail and not lenient:
        raise ModelError(
            f"T has {len(functions)} functions and no constant tail, and the window has {len(vector)} places"
        )
    beyond = functions[-1] if tail and functions else _nothing
    return tuple(f(x) for f, x in zip([*functions, *[beyond] * max(short, 0)], vector, strict=False))


def _nothing(element: Any) -> None:
    del element


def uniform(vector: Vector, function: Function) -> Vector:
    """T[f]: apply the same function to all elements."""
    return transform(vector, [function], tail=True)


def search(vector: Vector, name: str, options: Sequence[Fraction] = ()) -> Vector:
    """A: return the element found, or the empty vector."""
    found = SEARCHES[name].find(vector, *options)
    return () if found is None else (found,)


def search_where(vector: Vector, condition: Function, *, first: bool = False) -> Vector:
    """A: return the elements that satisfy a condition, or the first one.

    >>> search_where((3, 5, 8, 2), lambda x: x % 2 == 0, first=True)
    (8,)
    """
    found = tuple(element for element in vector if condition(element))
    return found[:1] if first else found


def positions_of_greatest(vector: Vector) -> Vector:
    """A[argmax all]: return all positions of the maximum, from 1 on."""
    return tuple(i for i, element in enumerate(vector, start=1) if element == max(vector))


def accumulate(vector: Vector, name: str) -> Vector:
    """Ac: return exactly one value."""
    return (ACCUMULATORS[name].fold(vector),)


ORDERS: dict[str, Callable[[Vector], Vector]] = {
    "reverse": lambda vector: vector[::-1],
    "sort": lambda vector: tuple(sorted(vector)),
    "rotate": lambda vector: (*vector[1:], *vector[:1]),
}


def permute(vector: Vector, order: str | Sequence[int]) -> Vector:
    """P: permute by name, or by source positions from 1 on.

    >>> permute((1, 2, 3), "reverse"), permute((7, 8, 9), [2, 3, 1])
    ((3, 2, 1), (8, 9, 7))
    """
    if isinstance(order, str):
        if order not in ORDERS:
            raise ModelError(f"P has no order {order!r}; it has {', '.join(ORDERS)}")
        return ORDERS[order](vector)
    if sorted(order) != list(range(1, len(vector) + 1)):
        raise ModelError(f"P[{', '.join(map(str, order))}] does not name each of {len(vector)} places once")
    return tuple(vector[index - 1] for index in order)
