"""Vector operators of models, evaluated over Python tuples (C3-C9).

A vector has the elements of a window, the oldest first. An element is a value, or a tuple of values for
several columns. The operators have letters in the text of a model: T transform, F filter, M merge, A search,
Ac accumulate, P permute, Z pair.
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
    """Split a vector into its `count` oldest elements and the rest (operator letter F).

    >>> filter_oldest((1, 2, 3), 1)
    ((1,), (2, 3))
    """
    if count > len(vector):
        raise ModelError(f"F[oldest {count}] needs {count} elements, and the vector has {len(vector)}")
    return vector[:count], vector[count:]


def filter_where(vector: Vector, *selectors: Function) -> tuple[Vector, ...]:
    """Return, for each predicate, the elements that satisfy it (operator letter F).

    The returned vectors may overlap.
    """
    return tuple(tuple(element for element in vector if selects(element)) for selects in selectors)


def merge(first: Vector, second: Vector) -> Vector:
    """Append the second vector to the first (operator letter M).

    >>> merge((2, 3), (1, 2))
    (2, 3, 1, 2)
    """
    return (*first, *second)


def zipped(first: Vector, second: Vector) -> Vector:
    """Pair the elements of two vectors by position (operator letter Z, for two streams, C23)."""
    if len(first) != len(second):
        raise ModelError(
            f"Z pairs vectors of equal dimension, not {len(first)} and {len(second)}: align the streams first"
        )
    return tuple(zip(first, second, strict=True))


def transform(
    vector: Vector, functions: Sequence[Function], *, tail: bool = False, lenient: bool = False
) -> Vector:
    """Apply a function per position to the elements of a vector (operator letter T).

    With `tail`, the last function applies to all further positions. So a single function with a tail applies
    to all elements. With `lenient`, elements without a function become None.

    >>> transform((3, 4, 5), [lambda x: x * x, lambda x: x + 1], tail=True)
    (9, 5, 6)
    """
    short = len(vector) - len(functions)
    if short > 0 and not tail and not lenient:
        count = len(functions)
        raise ModelError(
            f"T has {count} functions and no constant tail, and the vector has {len(vector)} elements"
        )
    beyond = functions[-1] if tail and functions else _nothing
    return tuple(f(x) for f, x in zip([*functions, *[beyond] * max(short, 0)], vector, strict=False))


def _nothing(element: Any) -> None:
    del element


def uniform(vector: Vector, function: Function) -> Vector:
    """Apply the same function to all elements of a vector (operator letter T)."""
    return transform(vector, [function], tail=True)


def search(vector: Vector, name: str, options: Sequence[Fraction] = ()) -> Vector:
    """Search a vector for an element such as the maximum (operator letter A).

    Return a vector with this element, or the empty vector.
    """
    element = SEARCHES[name].find(vector, *options)
    return () if element is None else (element,)


def search_where(vector: Vector, condition: Function, *, first: bool = False) -> Vector:
    """Return the elements that satisfy a condition, or only the first of them (operator letter A).

    >>> search_where((3, 5, 8, 2), lambda x: x % 2 == 0, first=True)
    (8,)
    """
    matches = tuple(element for element in vector if condition(element))
    return matches[:1] if first else matches


def positions_of_greatest(vector: Vector) -> Vector:
    """Return all positions of the maximum, from 1 on (operator letter A)."""
    return tuple(i for i, element in enumerate(vector, start=1) if element == max(vector))


def accumulate(vector: Vector, name: str) -> Vector:
    """Combine all elements of a vector into one value, such as their sum (operator letter Ac)."""
    return (ACCUMULATORS[name].fold(vector),)


ORDERS: dict[str, Callable[[Vector], Vector]] = {
    "reverse": lambda vector: vector[::-1],
    "sort": lambda vector: tuple(sorted(vector)),
    "rotate": lambda vector: (*vector[1:], *vector[:1]),
}


def permute(vector: Vector, order: str | Sequence[int]) -> Vector:
    """Reorder the elements of a vector (operator letter P).

    `order` is a name, or lists for each result position the source position, from 1 on.

    >>> permute((1, 2, 3), "reverse"), permute((7, 8, 9), [2, 3, 1])
    ((3, 2, 1), (8, 9, 7))
    """
    if isinstance(order, str):
        if order not in ORDERS:
            raise ModelError(f"P has no order {order!r}; it has {', '.join(ORDERS)}")
        return ORDERS[order](vector)
    if sorted(order) != list(range(1, len(vector) + 1)):
        listed = ", ".join(map(str, order))
        raise ModelError(f"P[{listed}] does not list each of the positions 1 to {len(vector)} once")
    return tuple(vector[index - 1] for index in order)
