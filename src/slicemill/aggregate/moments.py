"""States that a window can keep up to date: tuples are added when they come and taken out when they expire.

Sums are kept as exact rational numbers and rounded once, when asked (M32): a window that adds and subtracts
floats would drift, and its result would depend on how the tuples were grouped into panes (M35).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol, cast

from slicemill.aggregate.definition import comparable
from slicemill.aggregate.inwindow import Args
from slicemill.scalar.values import EXACT
from slicemill.storage.codec import register

Number = int | float | Decimal


def _nearest_float(exact: int | Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class Statistic(Protocol):
    """A state from which a tuple can be taken out again."""

    def add(self, args: Args) -> None: ...

    def remove(self, args: Args) -> None: ...

    def value(self) -> object: ...

    def state(self) -> object: ...

    def restore(self, state: Any) -> None: ...


class Count:
    """Tuples without a NULL among the arguments; without arguments, all of them."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, args: Args) -> None:
        self._count += None not in args

    def remove(self, args: Args) -> None:
        self._count -= None not in args

    def value(self) -> object:
        return self._count

    def state(self) -> object:
        return self._count

    def restore(self, state: Any) -> None:
        self._count = state


class CountDistinct:
    """Different argument tuples without a NULL. NaN counts once, as in Spark."""

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        self._copies: Counter[Args] = Counter()

    def add(self, args: Args) -> None:
        if None not in args:
            self._copies[comparable(args)] += 1

    def remove(self, args: Args) -> None:
        if None not in args:
            key = comparable(args)
            self._copies[key] -= 1
            if not self._copies[key]:
                del self._copies[key]

    def value(self) -> object:
        return len(self._copies)

    def state(self) -> object:
        return self._copies

    def restore(self, state: Any) -> None:
        self._copies = state


class Percentile:
    """The value at a share of the way through the sorted values, as a float; NaN is the greatest (Spark).

    Between two values it is where the share falls: 0.25 of the way through (0, 10) is 2.5. The share is the
    second argument, the same for all tuples; without one it is a half, the median.
    """

    __slots__ = ("_share", "_sorted")

    def __init__(self) -> None:
        self._share = 0.5
        self._sorted: list[tuple[bool, float]] = []

    def add(self, args: Args) -> None:
        if len(args) > 1:
            self._share = float(cast(Number, args[1]))
        if args[0] is not None:
            insort(self._sorted, self._key(args[0]))

    def remove(self, args: Args) -> None:
        if args[0] is not None:
            del self._sorted[bisect_left(self._sorted, self._key(args[0]))]

    def value(self) -> object:
        if not self._sorted:
            return None
        place = (len(self._sorted) - 1) * self._share
        below, above = math.floor(place), math.ceil(place)
        (_, lower), (_, upper) = self._sorted[below], self._sorted[above]
        if below == above or lower == upper:
            return lower
        return (above - place) * lower + (place - below) * upper

    def state(self) -> object:
        return self._share, self._sorted

    def restore(self, state: Any) -> None:
        self._share, self._sorted = state

    @staticmethod
    def _key(arg: object) -> tuple[bool, float]:
        # One zero: which of the two comes first among equals is nobody's business.
        number = float(cast(Number, arg)) + 0.0
        return (True, math.nan) if math.isnan(number) else (False, number)


class Moments:
    """Exact count, sum and, to the second degree, sum of squares; states add and subtract.

    Infinities and NaNs are counted apart, since a sum cannot get rid of them again.
    """

    __slots__ = ("count", "kinds", "nonfinite", "sums")

    def __init__(self, degree: int) -> None:
        self.count = 0
        self.sums: list[int | Fraction] = [0] * degree
        self.kinds: Counter[type] = Counter()
        self.nonfinite: Counter[str] = Counter()  # by name: a stored NaN would not be found again

    def include(self, number: Number, copies: int) -> None:
        self.count += copies
        self.kinds[type(number)] += copies
        if not math.isfinite(number):
            self.nonfinite[str(abs(float(number)) if math.isnan(number) else float(number))] += copies
            return
        exact = number if isinstance(number, int) else Fraction(number)
        for degree in range(len(self.sums)):
            self.sums[degree] += copies * exact ** (degree + 1)

    def merge(self, other: Moments, copies: int) -> None:
        self.count += copies * other.count
        for degree, value in enumerate(other.sums):
            self.sums[degree] += copies * value
        for kind, count in other.kinds.items():
            self.kinds[kind] += copies * count
        for number, count in other.nonfinite.items():
            self.nonfinite[number] += copies * count

    def rounded(self, exact: int | Fraction) -> Number:
        """The exact figure as a number of SQL: the inputs' type, except that a broken number is a float."""
        if +self.nonfinite:
            return sum(map(float, self.nonfinite.elements()))
        if self.kinds[Decimal] and not self.kinds[float]:
            return EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
        return int(exact) if exact.denominator == 1 and not self.kinds[float] else _nearest_float(exact)


_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "decimal": Decimal}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def _moments_plain(moments: Moments) -> dict[str, object]:
    kinds = {_NAMES[kind]: count for kind, count in moments.kinds.items()}
    return {"count": moments.count, "sums": moments.sums, "kinds": kinds, "odd": dict(moments.nonfinite)}


def _moments_of(plain: dict[str, Any]) -> Moments:
    made = Moments(0)
    made.count, made.sums = plain["count"], plain["sums"]
    made.kinds = Counter({_KINDS[name]: count for name, count in plain["kinds"].items()})
    made.nonfinite = Counter(plain["odd"])
    return made


register("moments", 1, Moments, _moments_plain, _moments_of)


@dataclass(frozen=True, slots=True)
class MomentStatistic:
    """A figure computed from the moments; its argument is a number, or the moments of a pane."""

    moments: Moments
    figure: Callable[[Moments], object]

    def add(self, args: Args) -> None:
        self._change(args[0], 1)

    def remove(self, args: Args) -> None:
        self._change(args[0], -1)

    def value(self) -> object:
        return self.figure(self.moments)

    def state(self) -> object:
        return self.moments

    def restore(self, state: Any) -> None:
        object.__setattr__(self, "moments", state)

    def _change(self, arg: object, copies: int) -> None:
        if isinstance(arg, Moments):
            self.moments.merge(arg, copies)
        elif arg is not None:
            self.moments.include(cast(Number, arg), copies)


def total(moments: Moments) -> object:
    return moments.rounded(moments.sums[0]) if moments.count else None


def average(moments: Moments) -> object:
    if not moments.count:
        return None
    mean = moments.rounded(Fraction(moments.sums[0]) / moments.count)
    return _nearest_float(mean) if isinstance(mean, int) else mean


def sample_variance(moments: Moments) -> float | None:
    return _variance(moments, 1)


def sample_deviation(moments: Moments) -> float | None:
    return _root(sample_variance(moments))


def population_variance(moments: Moments) -> float | None:
    return _variance(moments, 0)


def population_deviation(moments: Moments) -> float | None:
    return _root(population_variance(moments))


def _variance(moments: Moments, bias: int) -> float | None:
    """Squared deviations from the mean, over the count less `bias`."""
    n = moments.count
    if n <= bias:
        return None
    if +moments.nonfinite:
        return math.nan
    first, second = moments.sums
    return _nearest_float(Fraction(n * second - first * first) / (n * (n - bias)))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)
