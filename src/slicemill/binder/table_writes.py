"""Binder of `INSERT INTO t` in user-defined aggregates, for a table t of the catalog (M40).

Inserts into tables of the catalog do not change the results of the aggregate. So the binder splits the
aggregate f:

    INSERT INTO state …              f                  updates its state, and returns results
    INSERT INTO t VALUES (k, n)      "f into t"         updates an equal state, and returns the rows for t
    INSERT INTO RETURN …

A query q that calls f gets an additional query "q into t" for each such table. The additional query has the
SELECT of q with only the call of `f into t`, and the sink `table:t`. So rows are written to t in the order of
tuples and exactly once, like the results of any query with a table sink. The rows are those that INSERT INTO
RETURN would emit. If the window of the call would lose some of these rows, the call is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sqlglot import exp

from slicemill.binder.context import BrokenDependency, Context, ErrorCollector
from slicemill.binder.select_list import schema_of_items
from slicemill.catalog.aggregates import RETURN, AggregateDefinition, BodyState, Insert, Statement, While
from slicemill.catalog.catalog import (
    INTO,
    TABLE_SINK,
    DerivedStream,
    QueryDefinition,
    QueryOptions,
    Table,
    queries_in,
)
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import (
    AggregateCall,
    Continuous,
    RelationQuery,
    SelectItem,
    SelectQuery,
    WindowCall,
)
from slicemill.errors import all_of, did_you_mean, one_of
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError, TextSpan
from slicemill.sql.nodes import child, span_of
from slicemill.types import Column, Schema, assignable

Call: TypeAlias = AggregateCall | WindowCall
Version: TypeAlias = AggregateDefinition | None
_PER_TUPLE = frozenset((BodyState.INITIALIZE, BodyState.ITERATE))


def split_table_writes(
    definition: AggregateDefinition, stored: Mapping[str, Schema], place: exp.Expression
) -> AggregateDefinition:
    """Split an aggregate that inserts into tables: results, and rows for each table."""
    if not stored:
        return definition
    if definition.algebraic:
        raise StatementError(
            f"{definition.name} is ALGEBRAIC, and each partial aggregate would write {all_of(list(stored))}",
            span_of(place),
            "leave ALGEBRAIC out",
        )
    written = tuple(
        replace(
            definition,
            name=f"{definition.name}{INTO}{table}",
            returns=Schema(tuple(Column(column.name, column.type) for column in schema)),
            bodies={state: _keep_inserts(body, table) for state, body in definition.bodies.items()},
            into=table,
        )
        for table, schema in stored.items()
    )
    bodies = {state: _keep_inserts(body, None) for state, body in definition.bodies.items()}
    return replace(definition, bodies=bodies, written=written)


def _keep_inserts(statements: tuple[Statement, ...], table: str | None) -> tuple[Statement, ...]:
    """Return the statements of a body, with only the rows for `table` as results.

    INSERT INTO `table` becomes INSERT INTO RETURN. Other inserts into tables of the catalog, and into RETURN,
    are removed. If `table` is None, INSERT INTO RETURN is kept and all inserts into tables of the catalog are
    removed.
    """
    found: list[Statement] = []
    for one in statements:
        if isinstance(one, While):
            found.append(While(one.condition, _keep_inserts(one.statements, table)))
        elif not isinstance(one, Insert) or not (one.stored or one.table == RETURN):
            found.append(one)
        elif (one.table if one.stored else None) == table:
            found.append(replace(one, table=RETURN, stored=False))
    return tuple(found)


def refuse_table_writes(base: Version, place: TextSpan) -> None:
    """Raise if an aggregate that inserts into tables is called in a query over tables."""
    if base is not None and base.written:
        raise StatementError(
            f"{base.name} writes {_tables_of(base)}, so it runs over streams",
            place,
            "call it in the SELECT of a query over a stream",
        )


def with_writers(query: QueryDefinition, node: exp.Expression, context: Context) -> QueryDefinition:
    """Add the internal queries that write the tables into which aggregates insert."""
    if isinstance(query.query, RelationQuery):
        return query
    return replace(query, writers=tuple(_writers(query, query.query, node, context)))


def stream_with_writers(stream: DerivedStream, node: exp.Expression, context: Context) -> DerivedStream:
    """Add the internal queries that write the tables for a derived stream's aggregates."""
    return replace(stream, writers=tuple(_writers(stream, stream.query, node, context)))


def _writers(
    owner: QueryDefinition | DerivedStream, query: Continuous, node: exp.Expression, context: Context
) -> Iterator[QueryDefinition]:
    names: set[str] = set()
    seen: list[SelectQuery | RelationQuery] = []
    for part in queries_in(query):
        if isinstance(part, RelationQuery) or any(part is one for one in seen):
            continue  # a WITH definition that is read twice is computed and written only once
        seen.append(part)
        calls: tuple[Call, ...] = (*part.aggregates, *part.window_calls)
        for call in calls:
            for version in _writing_aggregates(part, call, node, context):
                assert version.into is not None, "it is of what is written"
                name = wanted = f"{owner.name}{INTO}{version.into}"
                while name.lower() in names:
                    name = f"{wanted} {len(names) + 1}"
                names.add(name.lower())
                yield _writer(owner, name, _select(part, call, version), version.into, node, context)


def _writing_aggregates(
    part: SelectQuery, call: Call, node: exp.Expression, context: Context
) -> tuple[AggregateDefinition, ...]:
    """Return the aggregates, one for each table, whose results are rows that a call inserts.

    Raise if the window of the call would lose written rows.
    """
    base, window = context.catalog.declared_versions(call.name)
    if isinstance(call, AggregateCall) or call.window.extent is None or call.window.tumbles or window is None:
        used = base
    else:
        used = window
    if used is None or not used.written:
        return ()
    states = frozenset(state for one in used.written for state in one.returning)
    problem = _lost_writes(part, call, used, states)
    if problem is not None:
        raise StatementError(problem[0], _call_span(node, call), problem[1])
    return used.written


def _lost_writes(
    part: SelectQuery,
    call: Call,
    used: AggregateDefinition,
    states: frozenset[BodyState],
) -> tuple[str, str] | None:
    """Return an error and a hint if a call would lose inserted rows, or None."""
    name, tables = used.name, _tables_of(used)
    if isinstance(call, AggregateCall):
        if part.changing or any(given.schema.changelog for given in part.inputs):
            return (
                f"{name} writes {tables}, and is computed again here whenever its input changes",
                "call it over a stream whose rows stay",
            )
        if used.blocking and states & _PER_TUPLE:
            return _only_at_the_end(used, states & _PER_TUPLE)
    elif call.window.active:
        if not used.window:
            return f"{name} would write {tables} again when a tuple leaves", "give it a window version"
    elif call.window.extent is not None and call.window.slide is not None:
        if used.window:
            return (
                f"{name} writes {tables} as tuples come and go, and this window answers at some of them only",
                "leave SLIDE out",
            )
        if states & _PER_TUPLE:
            return _only_at_the_end(used, states & _PER_TUPLE)
    elif BodyState.EXPIRE in states:
        return (
            f"{name} writes {tables} when a tuple leaves, and this window does not tell when that is",
            "write ACTIVE EXPIRATION",
        )
    return None


def _only_at_the_end(used: AggregateDefinition, states: frozenset[BodyState]) -> tuple[str, str]:
    where = all_of([state.value for state in BodyState if state in states])
    return (
        f"{used.name} writes {_tables_of(used)} in {where}, and this window answers when it ends",
        "write in TERMINATE; or call it at each tuple, with OVER (… UNBOUNDED PRECEDING)",
    )


def _tables_of(definition: AggregateDefinition) -> str:
    return all_of([one.into for one in definition.written if one.into is not None])


def _select(part: SelectQuery, call: Call, version: AggregateDefinition) -> SelectQuery:
    """Return the SELECT whose results are the rows that a call inserts into a table."""
    columns = version.returns.columns
    text = version.name
    alone = len(columns) == 1
    returned = tuple(Column(text, column.type) if alone else column.of(text) for column in columns)
    items = tuple(
        SelectItem(column.name, ColumnRef.to(read)) for column, read in zip(columns, returned, strict=True)
    )
    made = replace(call, name=version.name, columns=returned)
    return SelectQuery(
        inputs=part.inputs,
        where=part.where,
        group_by=part.group_by,
        aggregates=(made,) if isinstance(made, AggregateCall) else (),
        running=part.running and isinstance(made, AggregateCall),
        having=None,
        window_calls=(made,) if isinstance(made, WindowCall) else (),
        coalesce=None,
        items=items,
        schema=schema_of_items(items),
        session=part.session,
    )


def _writer(
    owner: QueryDefinition | DerivedStream,
    name: str,
    query: SelectQuery,
    table: str,
    node: exp.Expression,
    context: Context,
) -> QueryDefinition:
    known = context.catalog.queries.get(name.lower()) or context.catalog.relation(name)
    own = isinstance(known, QueryDefinition) and (known.writes_for or "").lower() == owner.name.lower()
    if known is not None and not own:
        raise StatementError(
            f"what {owner.name} writes into {table} would have the name {known.name}, which is already used",
            span_of(node),
            "give it another name",
        )
    weight, begins_us = 1.0, None
    if isinstance(owner, QueryDefinition):
        weight, begins_us = owner.options.weight, owner.begins_us
    options = QueryOptions(weight=weight, sink=f"{TABLE_SINK}{table}")
    return QueryDefinition(name, query, options, "", begins_us=begins_us, writes_for=owner.name)


def _call_span(node: exp.Expression, call: Call) -> TextSpan:
    for one in node.find_all(exp.Anonymous):
        if one.name.lower() == call.name.lower():
            over = one.parent
            return span_of(child(over, "this") if isinstance(over, nodes.Over) else one)
    return span_of(node)


# The option `sink = 'table:name'`, which writes continuous results into a table


def check_table_sink(
    query: Continuous | RelationQuery, options: Sequence[nodes.Option], context: Context
) -> None:
    """Raise if the sink of a query is a table that cannot store the results."""
    sink = next((option for option in options if option.this.name.lower() == "sink"), None)
    value = child(sink, "value") if sink is not None else None
    if not isinstance(value, exp.Literal):
        return
    name, place = QueryOptions(sink=value.name).table, span_of(value)
    if name is None:
        return
    if isinstance(query, RelationQuery):
        raise StatementError(
            "an ad hoc query has no continuous results", place, f"write INSERT INTO {name} SELECT …"
        )
    table = _table(name, place, context)
    problems = ErrorCollector()
    for column in query.schema.own:
        with problems.collect():
            into = table.schema.find(column.name)
            if into is None:
                known = did_you_mean(column.name, table.schema.names)
                raise StatementError(
                    f"table {table.name} has no column {column.name}",
                    place,
                    known or f"write SELECT … AS {table.schema.names[0]}: columns are matched by name",
                )
            if not assignable(into.type, column.type):
                raise StatementError(
                    f"{column.name} of table {table.name} is {into.type}, and this is {column.type}",
                    place,
                    f"write CAST(… AS {into.type}) AS {column.name}",
                )
    for required in dict.fromkeys((*table.key, *table.required)):
        with problems.collect():
            if query.schema.own.find(required) is None:
                raise StatementError(
                    f"{required} of table {table.name} must not be NULL, and is not selected",
                    place,
                    f"write SELECT … AS {required}",
                )
    problems.raise_any()
    _check_key(query, table, place)


def _table(name: str, place: TextSpan, context: Context) -> Table:
    relation = context.catalog.relation(name)
    tables = [
        one.name for one in context.catalog.relations.values() if isinstance(one, Table) and one.owns_rows
    ]
    if isinstance(relation, Table) and relation.owns_rows:
        return relation
    if relation is None and name.lower() in context.broken:
        raise BrokenDependency
    if relation is not None:
        raise StatementError(
            f"{relation.name} has no rows of its own", place, "name a table that is declared with its columns"
        )
    others = f"results are written into {one_of(tables)}" if tables else "declare it: CREATE TABLE"
    raise StatementError(f"there is no table {name}", place, did_you_mean(name, tables) or others)


def _check_key(query: Continuous, table: Table, place: TextSpan) -> None:
    """Check that the primary key of a table is the key of a changelog written into it.

    A changelog is written as updates by key.
    """
    if not query.schema.changelog:
        return
    if query.schema.key is None:
        raise StatementError(
            "these results change, and no columns identify their rows in a table",
            place,
            "select the columns of the groups, or the rank; or end the SELECT with EMIT FINAL",
        )
    if {name.lower() for name in query.schema.key} != {name.lower() for name in table.key}:
        key = ", ".join(query.schema.key)
        raise StatementError(
            f"these results change, and the key of their rows is ({key})",
            place,
            f"declare table {table.name} with PRIMARY KEY ({key})",
        )
