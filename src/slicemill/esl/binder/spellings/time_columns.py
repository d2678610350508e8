"""Find the columns that carry a stream's timestamp.

Windows can be declared on these columns only.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.errors import one_of
from slicemill.esl.binder.context import Context
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.catalog import Catalog, DerivedStream, Relation, Stream
from slicemill.esl.types.expression import ColumnRef
from slicemill.esl.types.query import Continuous, SelectQuery, UnionQuery
from slicemill.esl.types.relation import RelationQuery


def timestamps_of(relation: Relation | Continuous | RelationQuery, catalog: Catalog) -> frozenset[str]:
    """Return the columns, in lower case, whose value is the tuple's timestamp."""
    if isinstance(relation, Stream):
        return frozenset() if relation.time_column is None else frozenset({relation.time_column.lower()})
    if isinstance(relation, DerivedStream):
        if relation.order is not None:
            return frozenset({relation.order.lower()})
        return timestamps_of(relation.query, catalog)
    if isinstance(relation, UnionQuery):
        first, *others = (timestamps_of(branch, catalog) for branch in relation.branches)
        return first.intersection(*others)
    return _of_select(relation, catalog) if isinstance(relation, SelectQuery) else frozenset()


def _of_select(select: SelectQuery, catalog: Catalog) -> frozenset[str]:
    if select.coalesce is not None:
        return frozenset()
    if select.aggregates:
        passed = frozenset({"window_end"}) if not select.running else frozenset[str]()
    elif len(select.inputs) == 1:
        entry = select.inputs[0]
        below = entry.query if entry.query is not None else catalog.relation(entry.relation or "")
        passed = frozenset() if below is None else timestamps_of(below, catalog)
    else:
        return frozenset()
    return frozenset(
        item.name.lower()
        for item in select.items
        if isinstance(item.expr, ColumnRef) and item.expr.name.lower() in passed
    )


def check_timestamp(name: exp.Expression, stream: exp.Expression, context: Context) -> None:
    """Raise Mistake unless the column carries the timestamp of the stream."""
    assert isinstance(stream, exp.Identifier)
    relation = context.relation(stream)
    if relation.schema.changelog:
        raise Mistake(
            f"{stream.name} is a table that changes, and a window holds rows that stay",
            span_of(name),
            f"group by the time in the column: GROUP BY date_trunc('minute', {name.name})",
        )
    known = timestamps_of(relation, context.catalog)
    if name.name.lower() in known:
        return
    column = relation.schema.find(name.name)
    if column is None and name.name.lower() in ("proctime", "pt", "ptime"):
        hint = "for the clock's time, declare the stream (…, current_time timestamp) ORDER BY current_time"
    elif known:
        hint = f"it is {one_of(sorted(known))}"
    elif column is not None:
        hint = f"order the stream by it: CREATE STREAM … ORDER BY {column.name} SLACK 5 SECONDS"
    else:
        hint = "order the stream by a timestamp column: CREATE STREAM … ORDER BY ts"
    raise Mistake(
        f"windows follow the timestamp of {stream.name}, and {name.name} is not it", span_of(name), hint
    )
