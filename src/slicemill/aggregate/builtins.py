"""The built-in aggregates, each with a base version and a window version (M37, X6, X12, X13).

NULLs are skipped, except by first, last and priority_sample, for which a NULL is a tuple like any other; over
no value, counts are 0 and everything else is NULL. Plain variance and standard deviation are those of a
sample. All this is as in Spark.

`BUILTINS` maps a name to its definition; count(DISTINCT …) is `count_distinct`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slicemill.aggregate.definition import AggregateDefinition, Panes, Returned
from slicemill.aggregate.extremes import KEPT
from slicemill.aggregate.inwindow import Args, Inwindow
from slicemill.aggregate.moments import (
    Count,
    CountDistinct,
    Moments,
    MomentStatistic,
    Percentile,
    Statistic,
    average,
    population_deviation,
    population_variance,
    sample_deviation,
    sample_variance,
    total,
)
from slicemill.aggregate.synopses import Frequency, Ones
from slicemill.aggregate.texts import Joined


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

    def state(self) -> object:
        return self._statistic.state()

    def restore(self, state: Any) -> None:
        self._statistic.restore(state)


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

    def state(self) -> object:
        return self._statistic.state()

    def restore(self, state: Any) -> None:
        self._statistic.restore(state)


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
        _from_statistic("median", Percentile),
        _from_statistic("percentile", Percentile),
        _from_statistic("quantile", Percentile),
        _from_statistic("listagg", Joined),
        _from_statistic("string_agg", Joined),
        _from_statistic("approx_count", Frequency),
        _from_statistic("approx_count_if", Ones),
        *KEPT,
    )
}
