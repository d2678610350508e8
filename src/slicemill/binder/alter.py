"""Binder of ALTER STREAM, ALTER QUERY, PAUSE, RESUME, RESTART and REPLAY."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from slicemill.binder.changelog import check_sink
from slicemill.binder.context import BrokenDependency, Context, ErrorCollector
from slicemill.binder.create import QUERY_OPTIONS, kind_of, query_options, refuse_writer, retention_us
from slicemill.binder.expressions import bind
from slicemill.binder.queries import bind_query
from slicemill.binder.relations import RelationEnvironment
from slicemill.binder.scope import Scope
from slicemill.binder.table_writes import check_table_sink
from slicemill.binder.types import bind_columns
from slicemill.catalog.catalog import (
    ERRORS,
    AlteredQuery,
    AlteredStream,
    Catalog,
    DerivedStream,
    QueryDefinition,
    QueryOptions,
    Relation,
    Stream,
    View,
)
from slicemill.catalog.expressions import Cast, Expr, Literal
from slicemill.catalog.extended import ComputedStream
from slicemill.catalog.queries import SelectQuery
from slicemill.catalog.statements import LifecycleAction, LifecycleChange, Replay
from slicemill.errors import did_you_mean, one_of
from slicemill.extension import called_kinds
from slicemill.functions.signatures import castable
from slicemill.functions.values import ExpressionError
from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar.windows import duration
from slicemill.sql.lexer import tokenize
from slicemill.sql.nodes import at, child, span_of
from slicemill.types import Column, Kind, Schema, assignable


def bind_added_columns(node: nodes.AlterStream, context: Context) -> AlteredStream:
    before = find_running("STREAM", node.this, context)
    if not isinstance(before, Stream):
        raise StatementError(
            f"{before.name} has the columns that its query selects",
            span_of(node.this),
            f"write CREATE OR REPLACE STREAM {before.name} AS SELECT …"
            if isinstance(before, DerivedStream)
            else f"DROP {kind_of(before)} {before.name}, and create it anew",
        )
    declared: list[nodes.ColumnDeclaration] = child(node, "columns")
    added = bind_columns(declared)
    plain = added.with_units(())
    problems = ErrorCollector()
    defaults: list[tuple[str, object]] = []
    for column, declaration in zip(plain, declared, strict=True):
        with problems.collect():
            _check_name(column, before, declaration)
            if (given := child(declaration, "default")) is not None:
                value = _constant(given, column, context)
                defaults += [(column.name, value)] if value is not None else []
    problems.raise_any()
    after = replace(before, schema=Schema((*before.schema, *plain)), units=(*before.units, *added.units))
    return AlteredStream(before, after, tuple(defaults))


def _check_name(column: Column, stream: Stream, node: nodes.ColumnDeclaration) -> None:
    known = stream.schema.find(column.name)
    if known is not None:
        raise StatementError(
            f"{stream.name} has a column {known} already", span_of(node), "give the new one another name"
        )
    # These imports are local, so that the check of a script without ALTER STREAM loads neither Arrow nor
    # NumPy.
    from slicemill.columns.arrow_schema import ArrowSchemaError, to_arrow

    try:
        to_arrow(Schema((column,)))
    except ArrowSchemaError as problem:
        raise StatementError(str(problem), span_of(node), "give it another name or type") from None


def _constant(node: exp.Expression, column: Column, context: Context) -> object:
    """Return the constant default of a column, converted to the type of the column."""
    if named := node.find(exp.Column):
        raise StatementError(
            "a default must be a constant", span_of(named), "strings are written in single quotes"
        )
    value: Expr = bind(node, RelationEnvironment(context, Scope((), qualified=True), place="DEFAULT"))
    if isinstance(value, Literal) and value.value is None:
        return None
    text = isinstance(value, Literal) and value.type.kind is Kind.VARCHAR
    if not (text or assignable(column.type, value.type)) or not castable(value.type, column.type):
        raise StatementError(
            f"{column.name} is {column.type}, and its default {to_esl(node)} is {value.type}",
            span_of(node),
            f"write DEFAULT CAST(… AS {column.type})",
        )
    from slicemill.functions.rows import compile_expression

    try:
        return compile_expression(Cast(value, column.type), Schema(()))(())
    except ExpressionError as problem:
        raise StatementError(str(problem), span_of(node), f"write a constant of type {column.type}") from None


RETAIN = "retain"
ALTERABLE = ("weight", "slo", "sink", RETAIN)


def bind_alter(node: nodes.AlterQuery, context: Context) -> AlteredQuery:
    """Bind ALTER QUERY … SET, for options that do not change the results."""
    before = find_running("QUERY", node.this, context)
    assert isinstance(before, QueryDefinition), "that is its kind"
    refuse_writer(before, node.this)
    after, given, problems = before, set[str](), ErrorCollector()
    for option in child(node, "options"):
        with problems.collect():
            name = option.this.name.lower()
            if name in given:
                raise StatementError(f"{name} is given twice", span_of(option), "keep one of the two")
            given.add(name)
            after = _alter_option(after, name, option, context)
    problems.raise_any()
    return AlteredQuery(before, after)


def _alter_option(
    query: QueryDefinition, name: str, option: nodes.Option, context: Context
) -> QueryDefinition:
    if name in QUERY_OPTIONS and name not in ALTERABLE:
        raise StatementError(
            f"{name} is a part of what {query.name} computes",
            span_of(option),
            f"write CREATE OR REPLACE QUERY {query.name} WITH ({name} = …) AS …",
        )
    if name not in ALTERABLE:
        hint = did_you_mean(name, ALTERABLE) or f"what can be altered is {one_of(ALTERABLE)}"
        raise StatementError(f"a query has no option {option.this.name}", span_of(option), hint)
    cleared = isinstance(child(option, "value"), exp.Null)
    if name == RETAIN:
        return replace(query, retain_us=None if cleared else _parse_retention_us(option))
    value = getattr(QueryOptions() if cleared else query_options([option]), name)
    if name == "weight" and query.load is not None and value != query.options.weight:
        raise StatementError(
            f"the weight of {query.name} is a part of what it computes: it says what is dropped under load",
            span_of(option),
            f"write CREATE OR REPLACE QUERY {query.name} WITH (weight = …, …) AS …",
        )
    if name == "sink" and query.schema.changelog and query.options.sink not in (None, value):
        raise StatementError(
            f"results of {query.name} change, and another sink would lack the rows from before",
            span_of(option),
            f"DROP QUERY {query.name}, and CREATE it with this sink",
        )
    if name == "sink" and query.options.table is not None and value != query.options.sink:
        raise StatementError(
            f"{query.options.table} has rows of {query.name}, and would get no more",
            span_of(option),
            f"DROP QUERY {query.name}, and CREATE it with this sink",
        )
    if name == "sink":
        check_sink(query.query, [option])
        check_table_sink(query.query, [option], context)
    return replace(query, options=replace(query.options, **{name: value}))


def _parse_retention_us(option: nodes.Option) -> int:
    text = child(option, "value").name
    try:
        c = Cursor(tokenize(text), text)
        length = retention_us(duration(c))
        if length is not None and c.done:
            return length
    except StatementError:
        pass  # the error is raised below, with the position in the statement
    raise StatementError(
        f"'{text}' is not a duration", span_of(child(option, "value")), "write retain = '7 days', or NULL"
    )


# Existing objects that a CREATE would replace or duplicate, for OR REPLACE and IF NOT EXISTS


def object_exists(node: exp.Expression, context: Context) -> bool:
    """Return True if an object with the kind and name of a CREATE exists."""
    name, catalog = node.this.name.lower(), context.catalog
    if isinstance(node, nodes.CreateQuery):
        return name in catalog.queries
    if isinstance(node, nodes.CreateFunction):
        return name in catalog.functions
    if isinstance(node, nodes.CreateObject) and node.kind in called_kinds():
        return name in catalog.callables and catalog.callables[name].kind == node.kind
    if isinstance(node, nodes.CreateAggregate):
        if name in catalog.callables:
            return False
        return name in (catalog.window_aggregates if child(node, "window") else catalog.base_aggregates)
    return name in catalog.relations


def without_named(node: exp.Expression, catalog: Catalog) -> Catalog:
    """Return the catalog without the object that CREATE OR REPLACE replaces.

    Only an object of the same kind is replaced.
    """
    without, name = catalog.copy(), node.this.name.lower()
    if isinstance(node, nodes.CreateQuery):
        known = without.queries.get(name)
        if known is not None and known.writes_for is None:
            del without.queries[name]
    elif isinstance(node, nodes.CreateFunction):
        without.functions.pop(name, None)
    elif isinstance(node, nodes.CreateObject) and node.kind in called_kinds():
        if name in without.callables and without.callables[name].kind == node.kind:
            del without.callables[name]
            without.base_aggregates.pop(name, None)
            without.window_aggregates.pop(name, None)
    elif isinstance(node, nodes.CreateAggregate):
        if name not in without.callables:
            (without.window_aggregates if child(node, "window") else without.base_aggregates).pop(name, None)
    else:
        known_relation = without.relations.get(name)
        if isinstance(node, nodes.CreateObject):
            same = isinstance(known_relation, ComputedStream) and known_relation.kind == node.kind
        else:
            kinds = (View,) if isinstance(node, nodes.CreateView) else (Stream, DerivedStream)
            same = isinstance(known_relation, kinds)
        if same:
            del without.relations[name]
    return without


# PAUSE, RESUME and RESTART, which name a running query or stream


def bind_lifecycle_change(node: nodes.ChangeLifecycle, context: Context) -> LifecycleChange:
    action, kind = LifecycleAction(child(node, "action")), child(node, "kind")
    found = find_running(kind, node.this, context)
    if isinstance(found, Stream) and action is LifecycleAction.RESTART:
        raise StatementError(
            f"{found.name} comes from outside; its source is tried again by itself",
            span_of(node.this),
            "RESTART is for queries, and for streams that a query makes",
        )
    return LifecycleChange(action, kind, found.name)


def find_running(kind: str, identifier: exp.Identifier, context: Context) -> QueryDefinition | Relation:
    """Return the continuous query or stream with this name, or raise."""
    name, catalog = identifier.name, context.catalog
    known: dict[str, QueryDefinition | Relation] = (
        {**catalog.queries}
        if kind == "QUERY"
        else {
            key: one
            for key, one in catalog.relations.items()
            if isinstance(one, (Stream, DerivedStream, ComputedStream))
        }
    )
    found = known.get(name.lower())
    if found is None:
        if name.lower() in context.broken:
            raise BrokenDependency
        hint = did_you_mean(name, [one.name for one in known.values()])
        other = catalog.relations.get(name.lower()) if kind == "QUERY" else catalog.queries.get(name.lower())
        if isinstance(other, (Stream, DerivedStream, QueryDefinition)):
            hint = f"it is a {'stream' if kind == 'QUERY' else 'query'}"
        raise StatementError(f"there is no {kind.lower()} {name}", span_of(identifier), hint or "")
    if isinstance(found, QueryDefinition) and not found.continuous:
        raise StatementError(
            f"{found.name} reads tables and views only: it is evaluated when it is called, and never runs",
            span_of(identifier),
            "only a query over streams can be paused, resumed, restarted or altered",
        )
    return found


def bind_replay(node: nodes.ReplayErrors, context: Context) -> Replay:
    """Bind REPLAY of a stream's bad rows.

    A WHERE condition selects the rows to replay.
    """
    name, catalog = node.this.name, context.catalog
    owner = catalog.owner_of(name) if name.lower().endswith(ERRORS) else None
    if owner is None:
        if name.lower().removesuffix(ERRORS) in context.broken:
            raise BrokenDependency
        known = [one.name + ERRORS for one in catalog.relations.values() if isinstance(one, Stream)]
        declared = catalog.relations.get(name.lower())
        hint = f"write REPLAY {declared.name}{ERRORS}" if isinstance(declared, Stream) else ""
        raise StatementError(
            f"{name} has no rows that could not be read",
            span_of(node.this),
            hint or did_you_mean(name, known) or "a declared stream s keeps its bad rows in s_errors",
        )
    where = child(node, "where")
    if where is None:
        return Replay(owner.name + ERRORS, owner.name)
    # The condition is bound as the WHERE of a query over the bad rows.
    span = span_of(node.this)
    column = at(exp.Column(this=at(exp.Identifier(this="raw", quoted=False), span)), span)
    entry = at(nodes.StreamInput(this=node.this.copy()), span)
    select = at(exp.Select(expressions=[column], entries=[entry], where=exp.Where(this=where.copy())), span)
    query = bind_query(select, context)
    assert isinstance(query, SelectQuery), "it reads a stream"
    return Replay(owner.name + ERRORS, owner.name, query.where)
