"""Accuracy of temporal results with missing tuples (L9-L13).

A coalesced tuple of the exact result is a value with an interval. The approximate result has some
fragments of each exact tuple: disjoint parts of its interval. Fragments are matched with the tuple that
they originate from, so a value that occurs twice counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, TypeAlias

Interval: TypeAlias = tuple[int, int]


class Preference(StrEnum):
    """Relation of two intervals in a PQI interval order (L12).

    Equal ends count as contained.
    """

    STRICT = "P"  # disjoint
    WEAK = "Q"  # partial overlap
    INDIFFERENT = "I"  # one contains the other


def preference(x: Interval, y: Interval) -> Preference:
    """Return how two intervals relate (L12).

    >>> [str(preference((0, 4), y)) for y in ((2, 6), (1, 3), (4, 9))]
    ['Q', 'I', 'P']
    """
    if x[0] >= y[1] or y[0] >= x[1]:
        return Preference.STRICT
    if (x[0] <= y[0] and y[1] <= x[1]) or (y[0] <= x[0] and x[1] <= y[1]):
        return Preference.INDIFFERENT
    return Preference.WEAK


def similarity(x: Interval, y: Interval) -> Fraction:
    """Return the length of the intersection divided by the length of the hull."""
    return Fraction(max(0, min(x[1], y[1]) - max(x[0], y[0])), max(x[1], y[1]) - min(x[0], y[0]))


def jaccard(fragments: Sequence[int]) -> Fraction:
    """Return the similarity of values alone (L11).

    `fragments` has the number of fragments of each exact tuple.
    """
    union = sum(max(1, count) for count in fragments)
    return Fraction(sum(min(1, count) for count in fragments), union) if union else Fraction(1)


def kept_share(exact: Interval, fragments: Sequence[Interval]) -> Fraction:
    """Return the share of a tuple's time that its fragments cover (PQI, L12).

    The fragments lie inside the tuple's interval.
    """
    return Fraction(_length(fragments), _length([exact]))


class AccuracySums(NamedTuple):
    """Numerator and denominator of accuracy (L13).

    The numerator is the sum of the remaining shares of time, the denominator the number of results.
    """

    shares: float
    results: int


def accuracy_sums(
    exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]
) -> AccuracySums:
    """Return accuracy sums in floating point, for adding up many results."""
    shares = sum(_length(approximate.get(run, ())) / _length([one]) for run, one in exact.items())
    return AccuracySums(float(shares), _results(exact, approximate))


def _results(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> int:
    """Return the number of results.

    A fragment counts also if its run is not in the exact result, because a condition may hold for a
    fragment and not for its run.
    """
    wrong = sum(len(fragments) for run, fragments in approximate.items() if run not in exact)
    return wrong + sum(max(1, len(approximate.get(run, ()))) for run in exact)


def _length(intervals: Sequence[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def accuracy(exact: Mapping[int, Interval], approximate: Mapping[int, Sequence[Interval]]) -> Fraction:
    """Return ACC, from 0 to 1: accuracy of values and intervals (L13).

    Both arguments are by run number.

    >>> accuracy({1: (0, 4), 2: (4, 13)}, {1: [(0, 4)], 2: [(4, 7), (10, 13)]})
    Fraction(5, 9)
    """
    shares = sum(kept_share(one, approximate.get(run, ())) for run, one in exact.items())
    results = _results(exact, approximate)
    return Fraction(shares, results) if results else Fraction(1)
