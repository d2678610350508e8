"""Assign types to untyped arguments, from the types in the call.

The interpreter types such an argument by its value, and treats every integer as a BIGINT. So the argument
becomes a BIGINT here too. Every expression that contains the argument is typed again by the rules of the
binder.
"""

from __future__ import annotations

from dataclasses import replace

from slicemill.aggregate.compiler.source import NoCompiledForm
from slicemill.esl.types import schema as t
from slicemill.esl.types.aggregate import AggregateDefinition, Delete, Insert, LocalTable, Statement, While
from slicemill.esl.types.expression import (
    Argument,
    Call,
    Case,
    Cast,
    ColumnRef,
    ExistsQuery,
    Expr,
    Oldest,
    ScalarQuery,
    transform,
)
from slicemill.esl.types.relation import AggregateCall, RelationQuery, SelectItem
from slicemill.esl.types.schema import Column, Kind, Schema, Type
from slicemill.scalar.untyped import result_of_call

_SEEN_AS = {
    Kind.INT: t.BIGINT,
    Kind.TIMESTAMP: t.BIGINT,
    Kind.DATE: t.BIGINT,
    Kind.INTERVAL: t.BIGINT,
    Kind.MONTHS: t.BIGINT,
    Kind.VARCHAR: t.VARCHAR,
}


def specialised(definition: AggregateDefinition, types: tuple[Type, ...]) -> AggregateDefinition:
    """Return the definition for these argument types; raise if untypable."""
    if not any(column.type.kind is Kind.ANY for column in definition.arguments):
        return definition
    arguments = Schema(
        tuple(
            Column(argument.name, _seen_as(type_) if argument.type.kind is Kind.ANY else argument.type)
            for argument, type_ in zip(definition.arguments, types, strict=True)
        )
    )
    tables = tuple(
        LocalTable(table.name, _window_schema(table.schema, arguments)) for table in definition.tables
    )
    retyping = _Retyping(arguments, {table.name.lower(): table.schema for table in tables})
    bodies = {
        state: tuple(retyping.statement(statement) for statement in statements)
        for state, statements in definition.bodies.items()
    }
    return replace(definition, arguments=arguments, tables=tables, bodies=bodies)


def _seen_as(type_: Type) -> Type:
    return _SEEN_AS.get(type_.kind, type_)


def _window_schema(schema: Schema, arguments: Schema) -> Schema:
    """Assign the arguments' types to untyped columns, which are those of inwindow."""
    if not any(column.type.kind is Kind.ANY for column in schema):
        return schema
    if len(schema) != len(arguments):
        raise NoCompiledForm("a local table has a column without a type")
    return Schema(
        tuple(
            Column(column.name, argument.type if column.type.kind is Kind.ANY else column.type)
            for column, argument in zip(schema, arguments, strict=True)
        )
    )


class _Retyping:
    def __init__(self, arguments: Schema, tables: dict[str, Schema]) -> None:
        self._arguments = arguments
        self._tables = tables

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, While):
            inner = tuple(self.statement(each) for each in statement.statements)
            return While(self._expr(statement.condition, {}), inner)
        if isinstance(statement, Insert):
            query = None if statement.query is None else self._query(statement.query, {})
            rows = tuple(tuple(self._expr(expr, {}) for expr in row) for row in statement.rows)
            return replace(statement, rows=rows, where=self._maybe(statement.where, {}), query=query)
        columns = self._columns(statement.table, statement.table)
        where = self._maybe(statement.where, columns)
        if isinstance(statement, Delete):
            return replace(statement, where=where)
        assignments = tuple((name, self._expr(expr, columns)) for name, expr in statement.assignments)
        return replace(statement, assignments=assignments, where=where)

    def _columns(self, table: str, alias: str) -> dict[str, Type]:
        schema = self._tables.get(table.lower(), Schema(()))
        return {f"{alias}.{column.name}": column.type for column in schema}

    def _maybe(self, expr: Expr | None, columns: dict[str, Type]) -> Expr | None:
        return None if expr is None else self._expr(expr, columns)

    def _expr(self, expr: Expr, columns: dict[str, Type]) -> Expr:
        def change(node: Expr) -> Expr | None:
            if isinstance(node, ScalarQuery):
                query = self._query(node.query, columns)
                return ScalarQuery(query, query.schema.columns[0].type)
            if isinstance(node, ExistsQuery):
                return ExistsQuery(self._query(node.query, columns))
            if isinstance(node, Call) and node.type.kind is Kind.ANY:
                return replace(node, type=_result(node))
            if node.type.kind is not Kind.ANY:
                return None
            if isinstance(node, Argument):
                return replace(node, type=self._arguments.columns[self._arguments.index(node.name)].type)
            if isinstance(node, Oldest):
                window = self._tables["inwindow"]
                return replace(node, type=window.columns[window.index(node.column)].type)
            if isinstance(node, ColumnRef) and node.name in columns:
                return replace(node, type=columns[node.name])
            if isinstance(node, Case | Cast | ColumnRef):
                raise NoCompiledForm("an expression has no type")
            return None

        return transform(expr, change)

    def _query(self, query: RelationQuery, outside: dict[str, Type]) -> RelationQuery:
        columns = dict(outside)
        inputs = []
        for entry in query.inputs:
            if entry.query is not None:
                raise NoCompiledForm("a query in FROM is read, which only the interpreter does")
            schema = self._tables.get(entry.relation.lower(), entry.schema)
            inputs.append(replace(entry, schema=schema))
            columns |= {f"{entry.alias}.{column.name}": column.type for column in schema}
        aggregates = tuple(self._aggregate(call, columns) for call in query.aggregates)
        inside = columns | {column.name: column.type for call in aggregates for column in call.columns}
        items = tuple(SelectItem(item.name, self._expr(item.expr, inside)) for item in query.items)
        return replace(
            query,
            inputs=tuple(inputs),
            where=self._maybe(query.where, columns),
            aggregates=aggregates,
            having=self._maybe(query.having, inside),
            items=items,
            order_by=tuple((self._expr(expr, inside), descending) for expr, descending in query.order_by),
            schema=Schema(tuple(Column(item.name, item.expr.type) for item in items)),
        )

    def _aggregate(self, call: AggregateCall, columns: dict[str, Type]) -> AggregateCall:
        arguments = tuple(self._expr(argument, columns) for argument in call.arguments)
        types = []
        for column in call.columns:
            if column.type.kind is Kind.ANY and call.name.lower() not in ("min", "max", "first", "last"):
                raise NoCompiledForm(f"{call.name} has no type")
            type_ = arguments[0].type if column.type.kind is Kind.ANY else column.type
            types.append(Column(column.name, type_))
        return replace(call, arguments=arguments, columns=tuple(types))


def _result(call: Call) -> Type:
    type_ = result_of_call(call.function, call.arguments, tuple(a.type for a in call.arguments))
    if type_ is None:
        raise NoCompiledForm(f"{call.function} does not take what the call gives")
    return type_
