"""How much of a temporal result is left when tuples are missing (L9-L13).

A coalesced tuple of the exact result is a value with an interval. Of each one, the approximate result has
some fragments: pieces of its interval, none that overlap. Fragments are matched with the tuple they come
from, so one value in two places counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]


class Preference(StrEnum):
    """How two intervals relate in a PQI interval order (L12); equal ends count as contained."""

    STRICT = "P"  # disjoint
    WEAK = "Q"  # partial overlap
    INDIFFERENT = "I"  # one contains the other


def preference(x: Interval, y: Interval) -> Preference:
    """
    >>> [str(preference((0, 4), y)) for y in ((2, 6), (1, 3), (4, 9))]
    ['Q', 'I', 'P']
    """
    if x[0] >= y[1] or y[0] >= x[1]:
        return Preference.STRICT
    if (x[0] <= y[0] and y[1] <= x[1]) or (y[0] <= x[0] and x[1] <= y[1]):
        return Preference.INDIFFERENT
    return Preference.WEAK


def similarity(x: Interval, y: Interval) -> Fraction:
    """What two intervals share, of all that they cover together."""
    return Fraction(max(0, min(x[1], y[1]) - max(x[0], y[0])), max(x[1], y[1]) - min(x[0], y[0]))


def jaccard(fragments: Sequence[int]) -> Fraction:
    """Similarity of values alone, from the number of fragments of each exact tuple (L11)."""
    union = sum(max(1, count) for count in fragments)
    return Fraction(sum(min(1, count) for count in fragments), union) if union else Fraction(1)


def kept_share(exact: Interval, fragments: Sequence[Interval]) -> Fraction:
    """PQI of a tuple and its fragments, which lie inside it: the share of its time that is left (L12)."""
    return Fraction(sum(end - begin for begin, end in fragments), exact[1] - exact[0])


def accuracy_parts(
    exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]
) -> tuple[Fraction, int]:
    """The two sums whose quotient is the accuracy: of shares that are left, and of results (L13).

    Both are by the number of the run. A run may have fragments that were selected though it was not itself:
    they are wrong results, and nothing of it counts as kept.
    """
    shares, results = Fraction(0), 0
    for run, interval in exact.items():
        fragments = approximate.get(run, ())
        shares += kept_share(interval, fragments)
        results += max(1, len(fragments))
    results += sum(len(fragments) for run, fragments in approximate.items() if run not in exact)
    return shares, results


def accuracy(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> Fraction:
    """ACC, from 0 to 1: values and intervals together (L13).

    >>> accuracy({1: (0, 4), 2: (4, 13)}, {1: [(0, 4)], 2: [(4, 7), (10, 13)]})
    Fraction(5, 9)
    """
    shares, results = accuracy_parts(exact, approximate)
    return shares / results if results else Fraction(1)
