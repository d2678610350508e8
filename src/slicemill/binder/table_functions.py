"""Binder of `TABLE(f(…))` and `UNNEST(list)` in FROM: rows of a function or aggregate.

An aggregate runs over a single tuple of arguments. The body of a function is bound again for each call. The
body can read parameters and tables, but no columns of the calling query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from slicemill.binder.context import BrokenDependency, Context
from slicemill.binder.environments import SelectEnvironment
from slicemill.binder.expressions import as_argument, bind
from slicemill.binder.scope import Scope
from slicemill.binder.table_writes import refuse_table_writes
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.expressions import Argument, Cast, ColumnRef, Expr
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.queries import AggregateCall, QueryInput, RelationInput, RelationQuery, SelectItem
from slicemill.errors import did_you_mean, format_count
from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar import queries as grammar
from slicemill.sql.lexer import tokenize
from slicemill.sql.nodes import child, span_of
from slicemill.types import Column, Kind, Schema, Type, assignable


def row_schema_of(node: nodes.TableFunctionCall, context: Context) -> Schema:
    """Return the schema of the rows that a call in FROM returns."""
    found = _find_table_function(node.this, context)
    if isinstance(found, AggregateDefinition):
        return found.returns
    assert isinstance(found.returns, Schema), "it has been checked"
    return found.returns


def bind_table_call(
    node: nodes.TableFunctionCall,
    alias: str,
    context: Context,
    bind_argument: Callable[[exp.Expression], Expr],
) -> RelationInput:
    """Bind a TABLE(…) call.

    `bind_argument` binds the arguments in the calling query.
    """
    call = node.this
    found = _find_table_function(call, context)
    declared = found.arguments if isinstance(found, AggregateDefinition) else found.parameters
    if len(call.expressions) != len(declared):
        raise StatementError(
            f"{found.name} takes {format_count(len(declared), 'argument')}, not {len(call.expressions)}",
            span_of(call),
            f"call it as {found.name}{declared}",
        )
    arguments = []
    for parameter, argument_node in zip(declared, call.expressions, strict=True):
        argument = as_argument(bind_argument(argument_node), parameter.type, argument_node)
        if not assignable(parameter.type, argument.type):
            raise StatementError(
                f"{found.name} wants {parameter.type} for {parameter.name}, this is {argument.type}",
                span_of(argument_node),
                f"call it as {found.name}{declared}",
            )
        arguments.append((parameter.name, _cast_to(argument, parameter.type)))
    if isinstance(found, AggregateDefinition):
        query = _one_tuple(found)
    else:
        context.functions_called.add(found.name.lower())
        try:
            query = rows_of_function(found, context)
        except StatementError as mistake:
            said = mistake.diagnostic
            raise StatementError(f"in {found.name}: {said.message}", span_of(call), said.hint) from None
    return RelationInput(found.name, alias, query.schema, query, tuple(arguments))


def rows_of_function(definition: FunctionDefinition, context: Context) -> RelationQuery:
    """Return the query of a function that returns rows, with its declared columns."""
    assert definition.body is not None and isinstance(definition.returns, Schema), "it returns rows"
    body = grammar.query(Cursor(tokenize(definition.body), definition.body))
    return bind_body(body, definition.parameters, definition.returns, context)


def bind_body(node: exp.Expression, parameters: Schema, returns: Schema, context: Context) -> RelationQuery:
    inside = replace(context, local={}, in_body=True)
    from slicemill.binder.relations import bind_relation  # imported here because of a circular import

    query = bind_relation(node, inside, outer=Scope((), qualified=True, arguments=parameters))
    if len(query.schema) != len(returns):
        raise StatementError(
            f"{format_count(len(query.schema), 'column')} for {format_count(len(returns), 'column')}",
            span_of(node),
            f"the columns are {returns}",
        )
    items = []
    for item, column in zip(query.items, returns, strict=True):
        if not assignable(column.type, item.expr.type):
            raise StatementError(
                f"{column.name} is {column.type}, and this is {item.expr.type}",
                span_of(node),
                "convert it with CAST",
            )
        items.append(SelectItem(column.name, _cast_to(item.expr, column.type)))
    return replace(query, items=tuple(items), schema=returns)


def _one_tuple(definition: AggregateDefinition) -> RelationQuery:
    """Return the query `SELECT f(arguments)` over a single tuple.

    The aggregate runs INITIALIZE for the tuple, and then TERMINATE.
    """
    name, returns = definition.name, definition.returns
    arguments = tuple(Argument(column.name, column.type) for column in definition.arguments)
    columns = tuple(column.of(name) for column in returns)
    items = tuple(
        SelectItem(column.name, ColumnRef.to(read)) for column, read in zip(returns, columns, strict=True)
    )
    calls = (AggregateCall(name, arguments, False, columns),)
    return RelationQuery((), None, (), calls, None, items, False, (), None, returns)


def _find_table_function(call: exp.Anonymous, context: Context) -> FunctionDefinition | AggregateDefinition:
    name = call.name.lower()
    function = context.catalog.functions.get(name)
    if function is not None and isinstance(function.returns, Schema):
        return function
    base, window = context.catalog.declared_versions(call.name)
    if base is not None and base.provider is None:
        refuse_table_writes(base, span_of(call))
        return base
    if name in context.broken:
        raise BrokenDependency
    if function is not None or base is not None or window is not None:
        what = (
            "has only a window version" if base is None and function is None else "returns a value, not rows"
        )
        raise StatementError(
            f"{call.name} {what}",
            span_of(call),
            "TABLE takes functions declared with RETURNS TABLE, and base aggregates",
        )
    context.refuse_later(call.name, span_of(call))
    raise StatementError(
        f"there is no function {call.name} that returns rows",
        span_of(call),
        did_you_mean(call.name, _names(context))
        or "declare it: CREATE FUNCTION name(…) RETURNS TABLE (…) AS SELECT …",
    )


def _names(context: Context) -> Sequence[str]:
    functions = context.catalog.functions.values()
    rows = [function.name for function in functions if isinstance(function.returns, Schema)]
    return [*rows, *(definition.name for definition in context.catalog.base_aggregates.values())]


def _cast_to(value: Expr, type_: Type) -> Expr:
    return value if value.type == type_ else Cast(value, type_)


# UNNEST(list) in FROM, which returns one row for each element of a list


_UNNAMED = "unnest"


def bind_elements(entry: nodes.StreamInput, before: Sequence[QueryInput], context: Context) -> QueryInput:
    """Return the elements of a list as a finite relation with one column."""
    call = entry.this
    if child(entry, "frame") is not None:
        raise StatementError(
            "the elements of a list have no window", span_of(child(entry, "frame")), "leave the window out"
        )
    env = SelectEnvironment(
        context, Scope(tuple((one.alias, one.schema.own) for one in before), qualified=True), frozenset()
    )
    env.place = "UNNEST(…)"
    elements = bind(call.this, env)
    if elements.type.kind is not Kind.LIST or elements.type.element is None:
        raise StatementError(
            f"UNNEST takes a list, and this is {elements.type}",
            span_of(call.this),
            "as in UNNEST(split(text, ',')), or of what collect_list(x) gives",
        )
    alias_node = child(entry, "alias")
    alias = _UNNAMED if alias_node is None else str(alias_node.name)
    column_node = child(call, "column")
    name = alias if column_node is None else str(column_node.name)
    schema = Schema((Column(name, elements.type.element),))
    rows = RelationInput(_UNNAMED, alias, schema, arguments=(("list", elements),))
    return QueryInput(alias, schema, finite=True, call=rows)


def unnest_condition(join: nodes.JoinInput | None) -> tuple[exp.Expression | None, bool]:
    """Return the condition of a JOIN UNNEST, and True for a LEFT JOIN.

    A LEFT JOIN also emits tuples with empty lists.
    """
    side = None if join is None else child(join, "side")
    if join is None or side in (None, "CROSS"):
        return None if join is None else child(join, "on"), False
    on = child(join, "on")
    if side != "LEFT" or not isinstance(on, exp.Boolean) or not on.this:
        raise StatementError(
            "the elements of a list are joined with their own tuple",
            span_of(join),
            "write CROSS JOIN UNNEST(list) AS t(x), or LEFT JOIN UNNEST(list) AS t(x) ON TRUE",
        )
    return on, True
