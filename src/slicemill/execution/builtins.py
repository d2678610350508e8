"""The built-in aggregates, each with a base version and a window version (M37, X6, X12, X13).

NULLs are skipped, except by first and last; over no value, counts are 0 and everything else is NULL. Plain
variance and standard deviation are those of a sample. All this is as in Spark.

`BUILTINS` maps a name to its definition; count(DISTINCT …) is `count_distinct`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from slicemill.execution.aggregate import AggregateDefinition, Panes, Returned
from slicemill.execution.inwindow import Args, Inwindow
from slicemill.execution.window_statistics import (
    Count,
    CountDistinct,
    Median,
    Moments,
    MomentStatistic,
    Statistic,
    average,
    population_deviation,
    population_variance,
    sample_deviation,
    sample_variance,
    total,
)


class StatisticBase:
    """Base version of a statistic: silent until TERMINATE."""

    __slots__ = ("_statistic",)

    def __init__(self, statistic: Statistic) -> None:
        self._statistic = statistic

    def initialize(self, args: Args) -> Returned:
        self._statistic.add(args)
        return []

    iterate = initialize

    def terminate(self) -> Returned:
        return [self._statistic.value()]


class StatisticWindow:
    """Window version of a statistic: returns at arrivals and expiries, not over an empty window (X13)."""

    __slots__ = ("_inwindow", "_statistic")

    def __init__(self, statistic: Statistic, inwindow: Inwindow) -> None:
        self._statistic = statistic
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:
        self._statistic.add(args)
        return [self._statistic.value()]

    iterate = initialize

    def expire(self, args: Args) -> Returned:
        self._statistic.remove(args)
        return [self._statistic.value()] if len(self._inwindow) > 1 else []


@dataclass(frozen=True, slots=True)
class Contest:
    """Which of two values is kept, and whether a NULL takes part."""

    wins: Callable[[object, object], bool]
    takes_null: bool = False


class Kept:
    """Base version of min, max, first and last: the one value that wins over the others."""

    __slots__ = ("_best", "_contest", "_empty")

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._best: object = None
        self._empty = True

    def initialize(self, args: Args) -> Returned:
        new = args[0]
        takes_part = new is not None or self._contest.takes_null
        if takes_part and (self._empty or self._contest.wins(new, self._best)):
            self._best = new
            self._empty = False
        return []

    iterate = initialize

    def terminate(self) -> Returned:
        return [self._best]


class KeptWindow:
    """Window version of the same: the window forgets what a newer tuple beats, so the oldest one left wins.

    The new tuple is in the window already and must not delete itself; equal older values linger (X6). A
    forgotten tuple triggers no EXPIRE, so this version does not serve ACTIVE EXPIRATION.
    """

    __slots__ = ("_contest", "_inwindow")

    def __init__(self, contest: Contest, inwindow: Inwindow) -> None:
        self._contest = contest
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:
        new, contest = args[0], self._contest

        def beaten(old: Args) -> bool:
            if not contest.takes_null and (old[0] is None or new is None):
                return old[0] is None
            return old is not args and contest.wins(new, old[0])

        self._inwindow.delete(beaten)
        oldest = self._inwindow.oldest()
        return [None if oldest is None else oldest[0]]

    iterate = initialize

    def expire(self, args: Args) -> Returned:  # noqa: ARG002 - it is the oldest, which the window tells
        return [left[0] for left in list(self._inwindow)[1:2]]


def _greater(new: object, old: object) -> bool:
    """NaN is greater than every number, as in Spark."""
    if old != old:
        return False
    return new != new or cast(float, new) > cast(float, old)


def _from_statistic(
    name: str, make: Callable[[], Statistic], algebraic: bool = False, panes: Panes | None = None
) -> AggregateDefinition:
    return AggregateDefinition(
        name,
        base=lambda: StatisticBase(make()),
        window=lambda inwindow: StatisticWindow(make(), inwindow),
        algebraic=algebraic,
        panes=panes,
    )


def _from_moments(name: str, degree: int, figure: Callable[[Moments], object]) -> AggregateDefinition:
    """Panes hand on their moments, not their rounded figures; the same statistic combines them."""

    def make() -> Statistic:
        return MomentStatistic(Moments(degree), figure)

    def make_pane() -> StatisticBase:
        return StatisticBase(MomentStatistic(Moments(degree), lambda moments: moments))

    return _from_statistic(name, make, algebraic=True, panes=Panes(make_pane, _from_statistic(name, make)))


def _from_contest(name: str, contest: Contest) -> AggregateDefinition:
    return AggregateDefinition(
        name,
        base=lambda: Kept(contest),
        window=lambda inwindow: KeptWindow(contest, inwindow),
        algebraic=True,
        forgets=True,
    )


SUM = _from_moments("sum", 1, total)

BUILTINS: dict[str, AggregateDefinition] = {
    definition.name: definition
    for definition in (
        _from_statistic("count", Count, algebraic=True, panes=Panes(lambda: StatisticBase(Count()), SUM)),
        _from_statistic("count_distinct", CountDistinct),
        SUM,
        _from_moments("avg", 1, average),
        _from_moments("variance", 2, sample_variance),
        _from_moments("var_samp", 2, sample_variance),
        _from_moments("var_pop", 2, population_variance),
        _from_moments("stddev", 2, sample_deviation),
        _from_moments("stddev_samp", 2, sample_deviation),
        _from_moments("stddev_pop", 2, population_deviation),
        _from_statistic("median", Median),
        _from_contest("min", Contest(lambda new, old: _greater(old, new))),
        _from_contest("max", Contest(_greater)),
        _from_contest("first", Contest(lambda new, old: False, takes_null=True)),  # noqa: ARG005
        _from_contest("last", Contest(lambda new, old: True, takes_null=True)),  # noqa: ARG005
    )
}
