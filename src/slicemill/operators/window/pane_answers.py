"""Built-in aggregates over windows, computed from the partial aggregates of the window's panes.

An entry has the partial aggregates of the tuples of one pane and key. A view has the entries that one query
reads. A window is a span: a range of neighbouring entries of the view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.aggregates.exact import Totals, span_variances
from slicemill.aggregates.moments import ColumnMoments
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.errors import SlicemillError
from slicemill.functions.decimals import from_unscaled
from slicemill.functions.render import render
from slicemill.functions.values import BIGINT_MAX, BIGINT_MIN, EXACT
from slicemill.functions.vectors import arrow_type, fixed_width
from slicemill.kernels.arrays import Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.window.pane_state import Partials, partial_columns, reduce_groups, take_partials
from slicemill.operators.window.partial_aggregates import (
    Columns,
    CountIndex,
    EdgeValue,
    NonNullCount,
    PartialAggregate,
    PartialExtreme,
    PartialSum,
    sortable,
)
from slicemill.operators.window.spans import Spans
from slicemill.operators.window.spec import MEANS
from slicemill.types import Kind, Type

Call: TypeAlias = AggregateCall | WindowCall

_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)
_BIAS = {"variance": 1, "var_samp": 1, "stddev": 1, "stddev_samp": 1, "var_pop": 0, "stddev_pop": 0}


@dataclass(frozen=True)
class PaneAggregate:
    """Evaluation of an aggregate call over panes: partial aggregates, and the function for the results."""

    partials: tuple[PartialAggregate, ...]
    over: Callable[[PaneView, Spans], pa.Array]


def pane_aggregate_of(call: Call) -> PaneAggregate | None:
    """Return the evaluation of an aggregate call over panes; None if the call needs the single values."""
    if call.distinct:
        return None
    if call.name == "count" and not call.arguments:
        return PaneAggregate((), lambda view, spans: pa.array(view.index("").over(spans)))
    if len(call.arguments) != 1 or len(call.columns) != 1:
        return None
    argument, type_ = call.arguments[0], call.columns[0].type
    known = NonNullCount(argument)
    if call.name == "count":
        return PaneAggregate((known,), lambda view, spans: pa.array(view.index(known.name).over(spans)))
    if call.name in ("min", "max") and sortable(argument.type):
        return _extreme(known, PartialExtreme(argument, call.name == "max"))
    if call.name in ("first", "last") and (sortable(argument.type) or argument.type.kind is Kind.MONTHS):
        edge = EdgeValue(argument, call.name == "last")
        return PaneAggregate((edge,), lambda view, spans: view.index(edge.name).over(spans))
    if argument.type.kind not in _NUMBERS:
        return None
    if call.name == "sum":
        return _total(known, PartialSum(argument), call, type_)
    if call.name in MEANS:
        if argument.type.kind is Kind.DECIMAL:
            return _decimal_mean(known, PartialSum(argument), ColumnMoments("avg", argument.type, type_))
        return _mean(known, PartialSum(argument))
    if call.name in _BIAS:
        return _variance(argument, known, _BIAS[call.name], call.name.startswith("stddev"))
    return None


def _extreme(known: NonNullCount, extreme: PartialExtreme) -> PaneAggregate:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        return view.index(extreme.name).over(spans, view.index(known.name).over(spans) > 0)

    return PaneAggregate((known, extreme), over)


def _total(known: NonNullCount, sum_: PartialSum, call: Call, type_: Type) -> PaneAggregate:
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

    return PaneAggregate((known, sum_), over)


def _limits(type_: Type) -> tuple[int, int]:
    """Return the least and the greatest value of a numeric type, in units of its last decimal digit."""
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


def _mean(known: NonNullCount, sum_: PartialSum) -> PaneAggregate:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        count: Int64s = view.index(known.name).over(spans)
        return _doubles(view.index(sum_.name).over(spans).means(count), count > 0)

    return PaneAggregate((known, sum_), over)


def _decimal_mean(known: NonNullCount, sum_: PartialSum, statistic: ColumnMoments) -> PaneAggregate:
    def over(view: PaneView, spans: Spans) -> pa.Array:
        count: Int64s = view.index(known.name).over(spans)
        whole = view.index(sum_.name).over(spans).whole
        assert whole is not None, "sums of decimals are whole numbers of their last digits"
        return statistic.means_of(whole, count)

    return PaneAggregate((known, sum_), over)


def _variance(argument: Expr, known: NonNullCount, bias: int, root: bool) -> PaneAggregate:
    first, second = PartialSum(argument), PartialSum(argument, 2)

    def over(view: PaneView, spans: Spans) -> pa.Array:
        count: Int64s = view.index(known.name).over(spans)
        totals = [view.index(sum_.name).over(spans) for sum_ in (first, second)]
        found = span_variances(totals[0], totals[1], count, bias)
        return _doubles(np.sqrt(found) if root else found, count > bias)

    return PaneAggregate((known, first, second), over)


def _doubles(values: NDArray[np.float64], valid: NDArray[np.bool_]) -> pa.Array:
    return fixed_width(values, None if valid.all() else valid, pa.float64())


# Views: the entries (partial aggregates of a pane and key) that one query reads, ordered by key and time.


@dataclass
class PaneView:
    """Entries (partial aggregates of a pane and key) that one query reads, ordered by key and time.

    The entries of `keys[r]` have indexes from begin[r] to begin[r + 1]. There is one entry per key and pane,
    or one entry per tuple if entries have single tuples.
    """

    keys: Int64s
    begin: Int64s
    columns: Columns
    partials: Partials
    _made: dict[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> Int64s:
        start: Int64s = self.columns["start"]
        return start

    def index(self, name: str) -> Any:
        """Return the index that aggregates any range of entries for one partial aggregate.

        The index is built on first use. The name "" stands for the number of tuples.
        """
        if name not in self._made:
            if not name:
                self._made[name] = CountIndex(self.columns["rows"])
            else:
                columns = partial_columns(self.columns, name)
                self._made[name] = self.partials[name].index(columns, self.begin)
        return self._made[name]

    def output_keys(self, values: Callable[[Int64s], list[pa.Array]]) -> list[pa.Array]:
        """Return the output columns with the group keys of the view. They have 0.0 in place of -0.0."""
        if "keys" not in self._made:
            self._made["keys"] = [
                pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
                for column in values(self.keys)
            ]
        found: list[pa.Array] = self._made["keys"]
        return found

    def ranks(self, keys: Int64s) -> Int64s:
        """Return the position of each key among the keys of the view; -1 for a key without entries."""
        indices = np.searchsorted(self.keys, keys)
        indices[indices == len(self.keys)] = 0
        found = self.keys[indices] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        return np.where(found, indices, -1).astype(np.int64)


def by_key(entries: Columns, n_keys: int) -> Columns:
    """Return entries (partial aggregates of a pane and key) ordered by key, then by time."""
    return take_partials(entries, _key_order(entries["key"], n_keys))


def view_of(
    ordered: Columns, selected: NDArray[np.bool_], since: int, partials: Partials, single: bool = False
) -> PaneView:
    """Return the view for a query: the entries whose pattern (set of queries) includes the query.

    `selected` marks these patterns. Panes that begin before `since` are excluded. `ordered` is sorted by key,
    and is shared by several views.
    """
    wanted = selected[ordered["pattern"]] & (ordered["start"] >= since)
    columns = ordered if wanted.all() else take_partials(ordered, np.flatnonzero(wanted))
    key, start = columns["key"], columns["start"]
    if not len(key):
        return PaneView(key, np.zeros(1, np.int64), columns, partials)
    changes = key[1:] != key[:-1]
    again = ~changes & (start[1:] == start[:-1])
    if not single and again.any():
        group = np.concatenate(([0], np.cumsum(~again)))
        columns = reduce_groups(columns, group, int(group[-1]) + 1, partials)
        key = columns["key"]
        changes = key[1:] != key[:-1]
    begin = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(key)]))
    return PaneView(key[begin[:-1]], begin, columns, partials)


@kernel
def _key_order(key: Int64s, n_keys: int) -> Int64s:
    index = np.zeros(n_keys + 1, np.int64)
    for k in key:
        index[k + 1] += 1
    index = np.cumsum(index)
    order = np.empty(len(key), np.int64)
    for i in range(len(key)):
        order[index[key[i]]] = i
        index[key[i]] += 1
    return order
