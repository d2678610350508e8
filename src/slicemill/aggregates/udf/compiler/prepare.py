"""Preparation of calls of user-defined aggregates: as machine code, Python, or interpreted (M29-M38).

    uda = prepare(call, catalog)                  # a bound call, with or without OVER
    state = uda.start()
    answers = uda.run(state, Tuples([price], seller, ts))

Tuples arrive in order, in batches of any size. The results are those of the reference engine, in the same
order, independent of the batches. The state has all data that is needed between batches, and checkpoints can
store it.

A tuple is identified by its arrival number, counted from 0 over all batches of a call. Its result may be
returned in a later batch: at the end of its slide interval, or, under ACTIVE EXPIRATION, again at its expiry.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from slicemill import types as t
from slicemill.aggregates.calls import ExecutionForm, Uda
from slicemill.aggregates.definition import Strategy, strategy_of
from slicemill.aggregates.frames import frame_of
from slicemill.aggregates.registry import BUILTINS
from slicemill.aggregates.udf.compiler.compiled import CompiledCall, explain
from slicemill.aggregates.udf.compiler.derive_expire import with_derived_window
from slicemill.aggregates.udf.compiler.layout import INTERPRETER, MACHINE, PYTHON, NoCompiledForm
from slicemill.aggregates.udf.compiler.module import generate
from slicemill.aggregates.udf.interpreted_calls import InterpretedCall
from slicemill.aggregates.udf.interpreter import Source, no_tables
from slicemill.aggregates.udf.lookup import aggregate_lookup
from slicemill.catalog.aggregates import AggregateDefinition, Delete, Insert, LocalTable, Statement, While
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import (
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
from slicemill.catalog.queries import AggregateCall, RelationQuery, SelectItem, WindowCall
from slicemill.extension import predefined_names
from slicemill.functions.rows import result_of_call
from slicemill.types import Column, Kind, Schema, Type


def prepare(
    call: AggregateCall | WindowCall,
    catalog: Catalog,
    tables: Source = no_tables,
    forms: tuple[str, ...] = (MACHINE, PYTHON),
) -> Uda:
    """Prepare an aggregate call: compiled to the first of `forms` that supports it, or else interpreted.

    The forms are machine code and generated Python. `tables` returns the stored tables that the aggregate may
    read.
    """
    interpreted = InterpretedCall(call, catalog, tables)
    why = ""
    for form in forms:
        try:
            return _compile_call(call, catalog, form, why)
        except NoCompiledForm as reason:
            why = why or str(reason)
    interpreted.how = ExecutionForm(INTERPRETER, why, "")
    return interpreted


def _compile_call(call: AggregateCall | WindowCall, catalog: Catalog, form: str, why: str) -> CompiledCall:
    definition = aggregate_lookup(catalog)(call.name, call.distinct)
    frame = frame_of(call)
    strategy = None if frame is None else strategy_of(definition, frame)
    if strategy in (Strategy.FINITE, Strategy.SLIDING):
        catalog = with_derived_window(call.name, catalog)
        definition = aggregate_lookup(catalog)(call.name, call.distinct)
    types = tuple(argument.type for argument in call.arguments)
    base, window = (
        None if version is None else specialise(version, types) for version in catalog.aggregates(call.name)
    )
    if call.distinct or (
        base is None
        and (window is None or strategy not in (Strategy.FINITE, Strategy.SLIDING, Strategy.ACTIVE))
    ):
        raise NoCompiledForm(f"{call.name} is a built-in aggregate")
    versions = (base, window)
    types = _truncated_types(types, [version for version in versions if version is not None])
    literals: dict[str, int] = {}

    def user_defined(version: AggregateDefinition) -> frozenset[str]:
        """Return the names that denote user-defined aggregates inside an aggregate.

        Inside CREATE AGGREGATE sum, for example, the name sum denotes the built-in aggregate.
        """
        names = frozenset((*catalog.base_aggregates, *predefined_names()))
        name = version.name.lower()
        return names - {name} if not version.window and name in BUILTINS else names

    external = any(version is not None and version.external is not None for version in versions)
    if external and form == PYTHON:
        raise NoCompiledForm(f"{call.name} runs as Python in any case")
    # Methods of a Python class cannot receive NULL in machine code, so nullable calls run as Python.
    plain, nullable = (
        generate(
            versions,
            frame,
            strategy,
            types,
            PYTHON if external and maybe else form,
            maybe,
            literals,
            user_defined,
        )
        for maybe in (False, True)
    )
    returned = (base or window or _none()).returns
    how = ExecutionForm(form, why, (plain if external else nullable).source)
    returns = tuple(column.type for column in returned)
    return CompiledCall((plain, nullable), returns, types, frame, literals, how, partial(explain, definition))


def _none() -> AggregateDefinition:
    raise AssertionError("a compiled call has a definition")


def _truncated_types(types: tuple[Type, ...], versions: list[AggregateDefinition]) -> tuple[Type, ...]:
    """Replace the types of string arguments by VARCHAR(n), if the aggregate declares a length.

    Strings are truncated before they are encoded. The window stores the truncated strings.
    """
    truncated = list(types)
    for index, type_ in enumerate(types):
        declared = {version.arguments.columns[index].type for version in versions}
        if type_.kind is Kind.VARCHAR and any(wanted.length is not None for wanted in declared):
            in_window = {
                table.schema.columns[index].type
                for version in versions
                for table in version.tables
                if table.name == "inwindow"
            }
            if len(declared | in_window) > 1:
                raise NoCompiledForm("strings are truncated to different lengths")
            (truncated[index],) = declared
    return tuple(truncated)


# Types of arguments that are declared without a type
#
# They get the types of the call. The interpreter treats every integer value of an untyped argument as a
# BIGINT, so INT arguments become BIGINT. All expressions that contain the argument get new types by the rules
# of the binder.


_SEEN_AS = {
    Kind.INT: t.BIGINT,
    Kind.TIMESTAMP: t.BIGINT,
    Kind.DATE: t.BIGINT,
    Kind.INTERVAL: t.BIGINT,
    Kind.MONTHS: t.BIGINT,
    Kind.VARCHAR: t.VARCHAR,
}


def specialise(definition: AggregateDefinition, types: tuple[Type, ...]) -> AggregateDefinition:
    """Assign the types of a call to the arguments that an aggregate declares without a type.

    NoCompiledForm is raised if an expression then still has no type.
    """
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
    """Assign the types of the arguments to the untyped columns of a local table.

    Only `inwindow`, the table of the window's tuples, may have untyped columns.
    """
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
                raise NoCompiledForm("only the interpreter can read a query in FROM")
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
        raise NoCompiledForm(f"{call.function} does not accept the types of its arguments")
    return type_
