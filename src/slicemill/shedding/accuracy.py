"""How much of a temporal result is left when tuples are missing (L9-L13).

A coalesced tuple of the exact result is a value with an interval. Of each one, the approximate result has
some fragments: pieces of its interval, none that overlap. Fragments are matched with the tuple they come
from, so one value in two places counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, TypeAlias

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
    return Fraction(_length(fragments), _length([exact]))


class AccuracySums(NamedTuple):
    """What accuracy is the quotient of: shares of time that are left, and the number of results (L13)."""

    shares: float
    results: int


def accuracy_sums(
    exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]
) -> AccuracySums:
    """In floating point, for whoever adds up many results."""
    shares = sum(_length(approximate.get(run, ())) / _length([one]) for run, one in exact.items())
    return AccuracySums(float(shares), _results(exact, approximate))


def _results(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> int:
    """A run may have fragments that were selected though it was not itself: these are results too many."""
    wrong = sum(len(fragments) for run, fragments in approximate.items() if run not in exact)
    return wrong + sum(max(1, len(approximate.get(run, ()))) for run in exact)


def _length(intervals: Sequence[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def accuracy(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> Fraction:
    """ACC, from 0 to 1: values and intervals together (L13). Both sides are by the number of the run.

    >>> accuracy({1: (0, 4), 2: (4, 13)}, {1: [(0, 4)], 2: [(4, 7), (10, 13)]})
    Fraction(5, 9)
    """
    shares = sum(kept_share(one, approximate.get(run, ())) for run, one in exact.items())
    results = _results(exact, approximate)
    return Fraction(shares, results) if results else Fraction(1)
