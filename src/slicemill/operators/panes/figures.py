"""Built-in aggregates, computed from partial aggregates for spans of entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.exact.totals import Totals, variances
from slicemill.aggregate.moments import ColumnMoments
from slicemill.errors import SlicemillError
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import WindowCall
from slicemill.esl.types.relation import AggregateCall
from slicemill.esl.types.schema import Kind, Type
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.extremes import Extreme, sortable
from slicemill.operators.panes.grids import MEANS
from slicemill.operators.panes.partials import Edge, Known, Partial
from slicemill.operators.panes.spans import Spans
from slicemill.operators.panes.sums import Sum
from slicemill.operators.panes.view import PaneView
from slicemill.scalar.decimals import from_unscaled
from slicemill.scalar.values import BIGINT_MAX, BIGINT_MIN, EXACT
from slicemill.scalar.vectors import arrow_type, fixed_width

Call: TypeAlias = AggregateCall | WindowCall

_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)
_BIAS = {"variance": 1, "var_samp": 1, "stddev": 1, "stddev_samp": 1, "var_pop": 0, "stddev_pop": 0}


@dataclass(frozen=True)
class Figure:
    """Evaluation of an aggregate call over panes: its partials, and its result column."""

    partials: tuple[Partial, ...]
    over: Callable[[PaneView, Spans], pa.Array]


def figure_of(call: Call) -> Figure | None:
    """Return the evaluation of a call over panes, or None if unsupported."""
    if call.distinct:
        return None
    if call.name == "count" and not call.arguments:
        return Figure((), lambda view, spans: pa.array(view.index("").over(spans)))
    if len(call.arguments) != 1 or len(call.columns) != 1:
        return None
    argument, type_ = call.arguments[0], call.columns[0].type
    known = Known(argument)
    if call.name == "count":
        return Figure((known,), lambda view, spans: pa.array(view.index(known.name).over(spans)))
    if call.name in ("min", "max") and sortable(argument.type):
        return _extreme(known, Extreme(argument, call.name == "max"))
    if call.name in ("first", "last") and (sortable(argument.type) or argument.type.kind is Kind.MONTHS):
        edge = Edge(argument, call.name == "last")
        return Figure((edge,), lambda view, spans: view.index(edge.name).over(spans))
    if argument.type.kind not in _NUMBERS:
        return None
    if call.name == "sum":
        return _total(known, Sum(argument), call, type_)
    if call.name in MEANS:
        if argument.type.kind is Kind.DECIMAL:
            return _decimal_mean(known, Sum(argument), ColumnMoments("avg", argument.type, type_))
        return _mean(known, Sum(argument))
    if call.name in _BIAS:
        return _variance(argument, known, _BIAS[call.name], call.name.startswith("stddev"))
    return None


def _extreme(known: Known, extreme: Extreme) -> Figure:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        return view.index(extreme.name).over(spans, view.index(known.name).over(spans) > 0)

    return Figure((known, extreme), over)


def _total(known: Known, sum_: Sum, call: Call, type_: Type) -> Figure:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        totals: Totals = view.index(sum_.name).over(spans)
        valid = view.index(known.name).over(spans) > 0
        if type_.kind is Kind.DOUBLE:
            return _doubles(totals.doubles(), valid)
        whole = totals.whole
        assert whole is not None, "sums of doubles are doubles"
        least, largest = _limits(type_)
        if whole.dtype == object and len(whole) and not least <= min(whole) <= max(whole) <= largest:
            raise SlicemillError(f"sum({render(call.arguments[0])}) does not fit into {type_}")
        if type_.kind is Kind.DECIMAL:
            return _decimals(whole, valid, type_)
        return fixed_width(whole.astype(np.int64), None if valid.all() else valid, pa.int64())

    return Figure((known, sum_), over)


def _limits(type_: Type) -> tuple[int, int]:
    """Return the range of a column's values, in units of the last digit."""
    if type_.kind is Kind.DECIMAL:
        largest = 10 ** (type_.precision or 0) - 1
        return -largest, largest
    return BIGINT_MIN, BIGINT_MAX


def _decimals(whole: NDArray[Any], valid: NDArray[np.bool_], type_: Type) -> pa.Array:
    if whole.dtype != object and valid.all():
        return from_unscaled(whole, type_)
    scale = type_.scale or 0
    values = [
        Decimal(digits).scaleb(-scale, EXACT) if known else None
        for digits, known in zip(whole.tolist(), valid.tolist(), strict=True)
    ]
    return pa.array(values, arrow_type(type_))


def _mean(known: Known, sum_: Sum) -> Figure:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        count: Ints = view.index(known.name).over(spans)
        return _doubles(view.index(sum_.name).over(spans).means(count), count > 0)

    return Figure((known, sum_), over)


def _decimal_mean(known: Known, sum_: Sum, statistic: ColumnMoments) -> Figure:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        count: Ints = view.index(known.name).over(spans)
        whole = view.index(sum_.name).over(spans).whole
        assert whole is not None, "sums of decimals are whole numbers of their last digits"
        return statistic.means_of(whole, count)

    return Figure((known, sum_), over)


def _variance(argument: Expr, known: Known, bias: int, root: bool) -> Figure:
    first, second = Sum(argument), Sum(argument, 2)

    def over(view: PaneView, spans: Spans) -> pa.Array:
        count: Ints = view.index(known.name).over(spans)
        totals = [view.index(sum_.name).over(spans) for sum_ in (first, second)]
        found = variances(totals[0], totals[1], count, bias)
        return _doubles(np.sqrt(found) if root else found, count > bias)

    return Figure((known, first, second), over)


def _doubles(values: NDArray[np.float64], valid: NDArray[np.bool_]) -> pa.Array:
    return fixed_width(values, None if valid.all() else valid, pa.float64())
