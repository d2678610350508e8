"""Search and replacement of expressions in the clauses of a SELECT."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from slicemill.binder.context import Context
from slicemill.catalog.catalog import Catalog, DerivedStream, Relation, Stream
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import Continuous, RelationQuery, SelectQuery, UnionQuery
from slicemill.errors import one_of
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError, TextSpan
from slicemill.sql.grammar import expressions, queries
from slicemill.sql.lexer import tokenize
from slicemill.sql.nodes import child, span_of


def replace_in_clauses(select: exp.Select, change: Callable[[exp.Expression], exp.Expression | None]) -> None:
    """Replace expressions in all clauses of a SELECT except FROM.

    `change` returns None for a node to keep. The outermost match is replaced. Windows and sub-queries of FROM
    are not searched.
    """
    select.set("expressions", [replace_outermost(item, change) for item in select.expressions])
    for key in ("where", "having", "qualify"):
        clause = child(select, key)
        if clause is not None:
            clause.set("this", replace_outermost(clause.this, change))
    for key in ("group", "order"):
        clause = child(select, key)
        if clause is not None:
            clause.set("expressions", [replace_outermost(part, change) for part in clause.expressions])


def replace_outermost(
    node: exp.Expression, change: Callable[[exp.Expression], exp.Expression | None]
) -> exp.Expression:
    found = change(node)
    if found is not None:
        if "span" not in found.meta:
            found.meta["span"] = span_of(node)
        return found
    for key, value in list(node.args.items()):
        if isinstance(value, exp.Expression):
            node.set(key, replace_outermost(value, change))
        elif isinstance(value, list):
            node.set(
                key, [replace_outermost(v, change) if isinstance(v, exp.Expression) else v for v in value]
            )
    return node


def calls(select: exp.Select, *names: str) -> Iterator[exp.Anonymous]:
    """Yield the calls of functions with these names.

    The select list, WHERE, GROUP BY and HAVING are searched.
    """
    places = [*select.expressions, child(select, "where"), child(select, "group"), child(select, "having")]
    for place in places:
        for call in place.find_all(exp.Anonymous) if place is not None else ():
            if call.name.lower() in names:
                yield call


def bare_call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def column(name: str, table: str = "") -> exp.Column:
    identifier = exp.Identifier(this=name, quoted=True)
    return exp.Column(this=identifier, table=exp.Identifier(this=table, quoted=True) if table else None)


# Parsing of generated text to syntax nodes with a given span


def parse_query_at(text: str, span: TextSpan) -> exp.Expression:
    return _set_spans(queries.query(Cursor(tokenize(text), text)), span)


def parse_expression_at(text: str, span: TextSpan) -> exp.Expression:
    return _set_spans(expressions.expression(Cursor(tokenize(text), text)), span)


def _set_spans(node: exp.Expression, span: TextSpan) -> exp.Expression:
    for part in node.walk():
        part.meta["span"] = span
    return node


# Columns with the timestamp of a stream
#
# Windows can be declared only on these columns.


def timestamps_of(relation: Relation | Continuous | RelationQuery, catalog: Catalog) -> frozenset[str]:
    """Return the names of the columns whose value is the tuple's timestamp, in lower case."""
    if isinstance(relation, Stream):
        return frozenset() if relation.time_column is None else frozenset({relation.time_column.lower()})
    if isinstance(relation, DerivedStream):
        if relation.order is not None:
            return frozenset({relation.order.lower()})
        return timestamps_of(relation.query, catalog)
    if isinstance(relation, UnionQuery):
        first, *others = (timestamps_of(branch, catalog) for branch in relation.branches)
        return first.intersection(*others)
    return _timestamps_of_select(relation, catalog) if isinstance(relation, SelectQuery) else frozenset()


def _timestamps_of_select(select: SelectQuery, catalog: Catalog) -> frozenset[str]:
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
    """Raise StatementError unless a column has the timestamp of the stream."""
    assert isinstance(stream, exp.Identifier)
    relation = context.relation(stream)
    if relation.schema.changelog:
        raise StatementError(
            f"{stream.name} is a changelog, and a window needs rows that do not change",
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
    raise StatementError(
        f"windows follow the timestamp of {stream.name}, and {name.name} is not it", span_of(name), hint
    )
