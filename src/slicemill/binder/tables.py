"""Binder of CREATE TABLE with constraints, and INSERT, UPDATE, DELETE and TRUNCATE."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill.binder.context import BrokenDependency, Context, ErrorCollector
from slicemill.binder.create import bind_source, refuse_taken_name
from slicemill.binder.expressions import as_argument, bind, bind_condition
from slicemill.binder.queries import bind_query
from slicemill.binder.relations import RelationEnvironment
from slicemill.binder.scope import Scope
from slicemill.binder.types import bind_columns
from slicemill.binder.windows import duration_us
from slicemill.catalog.catalog import DerivedStream, Materialized, QueryDefinition, SourceSpec, Table
from slicemill.catalog.expressions import Cast, Expr, Literal
from slicemill.catalog.queries import RelationQuery
from slicemill.catalog.table_change import (
    EXCLUDED,
    DeleteRows,
    InsertRows,
    OnConflict,
    TableChange,
    TruncateTable,
    UpdateRows,
)
from slicemill.errors import did_you_mean, format_count, one_of
from slicemill.functions.signatures import castable
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import Column, Kind, Schema, Type, assignable

ROW_CHANGES = (nodes.InsertInto, nodes.UpdateSet, nodes.DeleteFrom, nodes.TruncateRows)
_LEAST_REFRESH_US = 1_000_000


def bind_table(node: nodes.CreateTable, context: Context) -> Table:
    refuse_taken_name(node.this, context)
    declared: list[nodes.ColumnDeclaration] = child(node, "columns")
    if not declared:
        raise StatementError("a table has at least one column", span_of(node.this), "name it before the key")
    schema = bind_columns(declared)
    source = bind_source(child(node, "source"))
    return Table(
        node.this.name,
        schema.with_units(()),
        source,
        schema.units,
        _key(node, schema),
        tuple(column.this.name for column in declared if child(column, "required")),
        _refresh(child(node, "refresh"), source),
    )


def bind_materialized(node: nodes.MaterializeTable, context: Context) -> Table:
    refuse_taken_name(node.this, context)
    named = child(node, "query")
    catalog = context.catalog
    found = catalog.queries.get(named.name.lower()) or catalog.relations.get(named.name.lower())
    if found is None:
        if named.name.lower() in context.broken:
            raise BrokenDependency
        context.refuse_later(named.name, span_of(named))
        known = [query.name for query in catalog.queries.values()]
        raise StatementError(
            f"there is no query {named.name}", span_of(named), did_you_mean(named.name, known)
        )
    if not isinstance(found, (QueryDefinition, DerivedStream)) or not found.schema.changelog:
        raise StatementError(
            f"the results of {found.name} do not change, and would grow without a limit as a table",
            span_of(named),
            "materialize one with GROUP BY and no window, or QUALIFY row_number() OVER (PARTITION BY …) = 1",
        )
    refresh = child(node, "refresh")
    every = _LEAST_REFRESH_US if refresh is None else _interval(refresh)
    made = Materialized(found.name, found.schema)
    return Table(
        node.this.name,
        found.schema.own,
        SourceSpec(),
        key=found.schema.key or (),
        refresh_us=every,
        materialized=made,
    )


def _key(node: nodes.CreateTable, schema: Schema) -> tuple[str, ...]:
    inline = [column for column in child(node, "columns") if child(column, "primary")]
    listed: list[exp.Identifier] | None = child(node, "key")
    if len(inline) > 1 or (inline and listed):
        names = ", ".join([*(c.this.name for c in inline), *(i.name for i in listed or ())])
        raise StatementError(
            "a table has one key", span_of(inline[-1]), f"write PRIMARY KEY ({names}) behind the columns"
        )
    named = [inline[0].this] if inline else listed or []
    for identifier in named:
        column = _column(identifier, schema)
        if column.type.kind is Kind.DOUBLE:
            raise StatementError(
                f"keys are compared exactly, and {column.name} is {column.type}",
                span_of(identifier),
                "declare it as BIGINT, DECIMAL or VARCHAR",
            )
    return tuple(dict.fromkeys(_column(identifier, schema).name for identifier in named))


def _column(identifier: exp.Identifier, schema: Schema) -> Column:
    found = schema.find(identifier.name)
    if found is None:
        hint = did_you_mean(identifier.name, schema.names) or f"the columns are {', '.join(schema.names)}"
        raise StatementError(f"there is no column {identifier.name}", span_of(identifier), hint)
    return found


def _refresh(node: nodes.Duration | None, source: SourceSpec) -> int | None:
    if node is None:
        return None
    if source == SourceSpec():
        raise StatementError(
            "only a table with a SOURCE is refreshed", span_of(node), "name its SOURCE, or leave REFRESH out"
        )
    return _interval(node)


def _interval(node: nodes.Duration) -> int:
    every = duration_us(node)
    if every < _LEAST_REFRESH_US:
        raise StatementError(
            "a source is read again once a second at most", span_of(node), "as in REFRESH EVERY 10 MINUTES"
        )
    return every


def bind_change(node: exp.Expression, context: Context) -> TableChange:
    """Bind INSERT, UPDATE, DELETE or TRUNCATE of a table."""
    table = _own_table(node.this, context)
    if isinstance(node, nodes.InsertInto):
        return _insert(node, table, context)
    if isinstance(node, nodes.TruncateRows):
        return TruncateTable(table.name)
    env = _environment(context, (table.name, table.schema))
    where_node = child(node, "where")
    if isinstance(node, nodes.UpdateSet):
        problems = ErrorCollector()
        assigned: tuple[tuple[str, Expr], ...] = ()
        with problems.collect():
            assigned = _assignments(child(node, "assignments"), table, env)
        where = None
        with problems.collect():
            where = bind_condition(where_node, env) if where_node is not None else None
        problems.raise_any()
        return UpdateRows(table.name, assigned, where)
    return DeleteRows(table.name, bind_condition(where_node, env) if where_node is not None else None)


def _own_table(identifier: exp.Identifier, context: Context) -> Table:
    known = {*context.catalog.relations, *context.local, *context.broken}
    if identifier.name.lower() not in known:
        context.refuse_later(identifier.name, span_of(identifier))
        tables = [one.name for one in context.catalog.relations.values() if isinstance(one, Table)]
        raise StatementError(
            f"there is no table {identifier.name}",
            span_of(identifier),
            did_you_mean(identifier.name, tables)
            or f"for a continuous result, write CREATE STREAM {identifier.name} AS SELECT …, or use a sink: "
            f"CREATE QUERY {identifier.name} WITH (sink = 'json:out') AS SELECT …",
        )
    relation = context.relation(identifier)
    if not isinstance(relation, Table):
        tables = [
            one.name for one in context.catalog.relations.values() if isinstance(one, Table) and one.owns_rows
        ]
        raise StatementError(
            f"{identifier.name} is no table",
            span_of(identifier),
            f"rows are changed in {one_of(tables)}" if tables else "declare one: CREATE TABLE name (columns)",
        )
    if relation.materialized is not None:
        raise StatementError(
            f"the rows of {relation.name} are results of {relation.materialized.name}",
            span_of(identifier),
            "a table that is declared with its columns has rows of its own",
        )
    if not relation.owns_rows:
        raise StatementError(
            f"the rows of {relation.name} come from its source",
            span_of(identifier),
            "change them there; a table without SOURCE has rows of its own",
        )
    return relation


def _environment(context: Context, *relations: tuple[str, Schema]) -> RelationEnvironment:
    return RelationEnvironment(context, Scope(relations, qualified=True), place="this statement")


def _insert(node: nodes.InsertInto, table: Table, context: Context) -> InsertRows:
    columns = _target_columns(node, table)
    problems = ErrorCollector()
    rows: list[tuple[Expr, ...]] = []
    query: RelationQuery | None = None
    conflict: OnConflict | None = None
    with problems.collect():
        if child(node, "query") is not None:
            query = _query(child(node, "query"), columns, table, context)
    env = _environment(context)
    for row in child(node, "values") or ():
        with problems.collect():
            rows.append(_values(row, columns, table, env))
    with problems.collect():
        conflict = _conflict(node, table, columns, context)
    problems.raise_any()
    return InsertRows(table.name, tuple(c.name for c in columns), tuple(rows), query, conflict)


def _target_columns(node: nodes.InsertInto, table: Table) -> list[Column]:
    listed: list[exp.Identifier] | None = child(node, "columns")
    if listed is None:
        return list(table.schema)
    columns = [_column(identifier, table.schema) for identifier in listed]
    for place, column in enumerate(columns):
        if column in columns[:place]:
            raise StatementError(
                f"{column.name} is given twice", span_of(listed[place]), "name each column once"
            )
    for name in (*table.key, *table.required):
        if table.schema.columns[table.schema.index(name)] not in columns:
            raise StatementError(
                f"{name} must not be NULL, and is not given", span_of(node.this), f"add {name} to the columns"
            )
    return columns


def _query(node: exp.Expression, columns: Sequence[Column], table: Table, context: Context) -> RelationQuery:
    query = bind_query(node, context)
    if not isinstance(query, RelationQuery):
        raise StatementError(
            "this reads a stream, which does not end",
            span_of(node),
            f"make it a continuous query: CREATE QUERY into_{table.name} "
            f"WITH (sink = 'table:{table.name}') AS SELECT …",
        )
    if len(query.schema) != len(columns):
        _check_value_count(len(query.schema), columns, node)
    for given, column in zip(query.schema, columns, strict=True):
        _check_type(given.type, column, node)
    return query


def _check_value_count(given: int, columns: Sequence[Column], node: exp.Expression) -> None:
    raise StatementError(
        f"{format_count(given, 'value')} for {format_count(len(columns), 'column')}",
        span_of(node),
        f"the columns are {', '.join(column.name for column in columns)}",
    )


def _check_type(given: Type, column: Column, node: exp.Expression) -> None:
    if not assignable(column.type, given):
        raise StatementError(
            f"{column.name} is {column.type}, this is {given}",
            span_of(node),
            f"write CAST(… AS {column.type})",
        )


def _values(
    row: exp.Expression, columns: Sequence[Column], table: Table, env: RelationEnvironment
) -> tuple[Expr, ...]:
    if len(row.expressions) != len(columns):
        _check_value_count(len(row.expressions), columns, row)
    problems = ErrorCollector()
    values: list[Expr] = []
    for node, column in zip(row.expressions, columns, strict=True):
        with problems.collect():
            values.append(_value(node, column, table, env))
    problems.raise_any()
    return tuple(values)


def _value(node: exp.Expression, column: Column, table: Table, env: RelationEnvironment) -> Expr:
    value = as_argument(bind(node, env), column.type, node)
    if column.name in (*table.key, *table.required) and isinstance(value, Literal) and value.value is None:
        why = "is in the key" if column.name in table.key else "is NOT NULL"
        raise StatementError(f"{column.name} {why}, and this is NULL", span_of(node), "give it a value")
    text = isinstance(value, Literal) and value.type.kind is Kind.VARCHAR
    if text and column.type.kind is not Kind.VARCHAR and castable(value.type, column.type):
        return Cast(value, column.type)  # a string literal converts to any type, as in PostgreSQL
    if value.type.kind is not Kind.NULL:
        _check_type(value.type, column, node)
    return value


def _assignments(
    given: Sequence[nodes.Assignment], table: Table, env: RelationEnvironment
) -> tuple[tuple[str, Expr], ...]:
    problems = ErrorCollector()
    found: dict[str, Expr] = {}
    for assignment in given:
        with problems.collect():
            column = _column(assignment.this, table.schema)
            if column.name in found:
                raise StatementError(
                    f"{column.name} is set twice", span_of(assignment), "set each column once"
                )
            found[column.name] = _value(assignment.expression, column, table, env)
    problems.raise_any()
    return tuple(found.items())


def _conflict(
    node: nodes.InsertInto, table: Table, columns: Sequence[Column], context: Context
) -> OnConflict | None:
    clause: nodes.OnConflictClause | None = child(node, "conflict")
    if not child(node, "replace") and clause is None:
        return None
    if not table.key:
        raise StatementError(
            f"{table.name} has no key, so no row can conflict",
            span_of(node.this if clause is None else clause),
            "declare it with PRIMARY KEY (…)",
        )
    env = _environment(context, (table.name, table.schema), (EXCLUDED, table.schema))
    if clause is None:  # INSERT OR REPLACE sets all columns of the INSERT
        every = tuple(
            (column.name, bind(exp.column(column.name, table=EXCLUDED), env))
            for column in columns
            if column.name not in table.key
        )
        return OnConflict(every)
    listed: list[exp.Identifier] | None = child(clause, "columns")
    if listed is not None and {_column(i, table.schema).name for i in listed} != set(table.key):
        raise StatementError(
            "ON CONFLICT names the key",
            span_of(listed[0]),
            f"write ON CONFLICT ({', '.join(table.key)})",
        )
    assignments = child(clause, "assignments")
    if not assignments:
        return OnConflict()
    assigned = _assignments(assignments, table, env)
    where = child(clause, "where")
    return OnConflict(assigned, bind_condition(where, env) if where is not None else None)
