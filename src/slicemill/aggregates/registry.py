"""Built-in aggregates by name, in their row-by-row implementation (M37, X6, X12, X13).

As in Spark, aggregates skip NULLs. Only first, last and priority_sample treat a NULL as any other value.
Without a value, a count is 0, a list is empty, and every other aggregate is NULL. variance and stddev are
sample statistics, with divisor n - 1.

`BUILTINS` maps a name to its definition. The name of count(DISTINCT …) is `count_distinct`.
"""

from __future__ import annotations

from collections.abc import Callable

from slicemill.aggregates.count import Count, CountDistinct
from slicemill.aggregates.definition import Panes, RowAggregate
from slicemill.aggregates.extremes import EXTREMES
from slicemill.aggregates.lists import CollectedSet, CollectedValues, JoinedTexts
from slicemill.aggregates.moments import (
    Moments,
    MomentStatistic,
    average,
    kurtosis,
    population_deviation,
    population_variance,
    sample_deviation,
    sample_variance,
    skewness,
    total,
)
from slicemill.aggregates.nth import NthValue
from slicemill.aggregates.ranks import Percentile
from slicemill.aggregates.statistic import Statistic, StatisticBase, from_statistic
from slicemill.aggregates.synopses import ApproxCount, ApproxCountIf


def _from_moments(name: str, degree: int, figure: Callable[[Moments], object]) -> RowAggregate:
    """Return an aggregate that is computed from sums of powers (moments), such as a variance.

    `figure` computes the value from the moments. Panes are combined by adding their exact moments.
    """

    def make() -> Statistic:
        return MomentStatistic(Moments(degree), figure)

    def make_pane() -> StatisticBase:
        return StatisticBase(MomentStatistic(Moments(degree), lambda moments: moments))

    return from_statistic(name, make, algebraic=True, panes=Panes(make_pane, from_statistic(name, make)))


SUM = _from_moments("sum", 1, total)

BUILTINS: dict[str, RowAggregate] = {
    definition.name: definition
    for definition in (
        from_statistic("count", Count, algebraic=True, panes=Panes(lambda: StatisticBase(Count()), SUM)),
        from_statistic("count_distinct", CountDistinct),
        SUM,
        _from_moments("avg", 1, average),
        _from_moments("mean", 1, average),
        _from_moments("variance", 2, sample_variance),
        _from_moments("var_samp", 2, sample_variance),
        _from_moments("var_pop", 2, population_variance),
        _from_moments("stddev", 2, sample_deviation),
        _from_moments("stddev_samp", 2, sample_deviation),
        _from_moments("stddev_pop", 2, population_deviation),
        _from_moments("skewness", 3, skewness),
        _from_moments("kurtosis", 4, kurtosis),
        from_statistic("median", Percentile),
        from_statistic("percentile", Percentile),
        from_statistic("quantile", Percentile),
        from_statistic("listagg", JoinedTexts),
        from_statistic("string_agg", JoinedTexts),
        from_statistic("nth_value", NthValue),
        from_statistic("collect_list", CollectedValues),
        from_statistic("array_agg", CollectedValues),
        from_statistic("collect_set", CollectedSet),
        from_statistic("collect_list_distinct", CollectedSet),
        from_statistic("array_agg_distinct", CollectedSet),
        from_statistic("approx_count", ApproxCount),
        from_statistic("approx_count_if", ApproxCountIf),
        *EXTREMES,
    )
}
