"""Choice of the columnar implementation for a call of a built-in aggregate, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from slicemill.aggregates.columns import ColumnStatistic
from slicemill.aggregates.count import ColumnCount, ColumnCountDistinct
from slicemill.aggregates.extremes import CHOICES, ColumnExtreme
from slicemill.aggregates.lists import ColumnList, ColumnTexts
from slicemill.aggregates.moments import STATISTICS, ColumnMoments
from slicemill.aggregates.nth import ColumnNthValue
from slicemill.aggregates.ranks import ColumnPercentile
from slicemill.aggregates.synopses import ColumnApproxCount, ColumnApproxCountIf
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.expressions import Literal
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.types import Kind

# Argument types without a columnar implementation: unknown types, NULL, and periods, which have no order
_WITHOUT_KERNEL = (Kind.ANY, Kind.NULL, Kind.PERIOD)


def has_kernel(call: AggregateCall | WindowCall) -> bool:
    """Return True if an aggregate call has a columnar implementation: built-in, for its argument types."""
    return call.name.lower() in BUILTINS and not any(
        argument.type.kind in _WITHOUT_KERNEL for argument in call.arguments
    )


def function_of(call: AggregateCall | WindowCall) -> ColumnStatistic:
    """Return the columnar implementation for a call of a built-in aggregate."""
    return _MAKERS[call.name.lower()](call)


def _constant(call: AggregateCall | WindowCall, otherwise: object) -> object:
    """Return the value of a call's second argument, which is constant, or `otherwise` if there is none."""
    constant = call.arguments[1] if len(call.arguments) > 1 else None
    return constant.value if isinstance(constant, Literal) else otherwise


def count_stored_arguments(call: AggregateCall | WindowCall) -> int:
    """Return the number of a call's arguments that are not constant, and so are stored with each row."""
    return len(BUILTINS[call.name.lower()].stored(call.arguments))


def is_numbered(call: AggregateCall | WindowCall) -> bool:
    return call.name.lower() == "priority_sample"


def counts_ones(call: AggregateCall | WindowCall) -> bool:
    return call.name.lower() == "approx_count_if"


def _count(call: AggregateCall | WindowCall) -> ColumnStatistic:
    return ColumnCountDistinct() if call.distinct else ColumnCount()


def _moments(call: AggregateCall | WindowCall) -> ColumnStatistic:
    return ColumnMoments(call.name.lower(), call.arguments[0].type, call.columns[0].type)


def _extreme(call: AggregateCall | WindowCall) -> ColumnStatistic:
    return ColumnExtreme(CHOICES[call.name.lower()])


def _percentile(call: AggregateCall | WindowCall) -> ColumnStatistic:
    return ColumnPercentile(float(cast(float, _constant(call, 0.5))))


def _texts(call: AggregateCall | WindowCall) -> ColumnStatistic:
    return ColumnTexts(cast(str, _constant(call, "")))


_MAKERS: dict[str, Callable[[AggregateCall | WindowCall], ColumnStatistic]] = {
    "count": _count,
    **dict.fromkeys(STATISTICS, _moments),
    **dict.fromkeys(CHOICES, _extreme),
    **dict.fromkeys(("median", "percentile", "quantile"), _percentile),
    **dict.fromkeys(("listagg", "string_agg"), _texts),
    **dict.fromkeys(("collect_list", "array_agg"), lambda call: ColumnList(call.distinct)),
    "collect_set": lambda _: ColumnList(distinct=True),
    "nth_value": lambda call: ColumnNthValue(cast(int, _constant(call, 1))),
    "approx_count": lambda _: ColumnApproxCount(),
    "approx_count_if": lambda _: ColumnApproxCountIf(),
}
