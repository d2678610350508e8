"""Translation of GROUP BY over the last rows into calls with OVER.

GROUP BY runs the base version of an aggregate, and OVER its window version. Aggregates for which the two
differ are not translated: user-defined ones with both versions, and built-ins whose result depends on
expired rows.
"""

from __future__ import annotations

from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import Call, ColumnRef, Expr, Literal
from slicemill.esl.types.query import FrameUnit, Window, WindowCall
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.esl.types.schema import DOUBLE, Column, Kind
from slicemill.operators.windowed_group.spec import RelationAggregate

# Their result depends on the number of tuples that arrived before the window or left it.
_KNOWS_THE_PAST = ("approx_count_if", "priority_sample")


def same_over(call: AggregateCall, catalog: Catalog) -> bool:
    """Return True if a call has the same result with OVER."""
    base, own = catalog.aggregates(call.name)
    if base is None and own is None:
        return call.name.lower() not in _KNOWS_THE_PAST
    return own is None or (base is not None and base.model is not None)


def calls_that_run(operator: RelationAggregate, catalog: Catalog) -> tuple[AggregateCall | WindowCall, ...]:
    """Return the calls as they are evaluated, possibly translated to OVER."""
    window = counting_window(operator, catalog)
    return operator.calls if window is None else over_calls(operator, window)


def counting_window(operator: RelationAggregate, catalog: Catalog) -> Window | None:
    """Return an equivalent OVER window by tuple numbers, or None."""
    _, rows = operator.windows[0]
    if operator.slide is not None or rows.frame is not FrameUnit.ROWS:
        return None
    assert rows.extent is not None, "the binder asks for a window with a beginning"
    same = all(same_over(call, catalog) for call in operator.calls)
    return Window(FrameUnit.RANGE, rows.extent - 1) if same else None


def over_calls(operator: RelationAggregate, window: Window) -> tuple[WindowCall, ...]:
    """Return the calls with OVER.

    Their columns have names that no column of a tuple has.
    """
    keys = tuple(item.expr for item in operator.group_by)
    return tuple(
        WindowCall(
            call.name,
            call.arguments,
            call.distinct,
            keys,
            window,
            tuple(Column(_over_name(column), column.type) for column in call.columns),
        )
        for call in operator.calls
    )


def shown_items(operator: RelationAggregate) -> tuple[SelectItem, ...]:
    """Return the select list: group keys with -0.0 as 0.0, and call results."""
    groups = tuple(SelectItem(item.name, _with_one_zero(item.expr)) for item in operator.group_by)
    columns = (column for call in operator.calls for column in call.columns)
    return (
        *groups,
        *(SelectItem(column.name, ColumnRef(_over_name(column), column.type)) for column in columns),
    )


def _over_name(column: Column) -> str:
    return f"over.{column.name}"


def _with_one_zero(expr: Expr) -> Expr:
    return Call("+", (expr, Literal(0.0, DOUBLE)), DOUBLE) if expr.type.kind is Kind.DOUBLE else expr
