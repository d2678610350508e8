"""Binder of CREATE AGGREGATE: local tables, and the statements of each phase (M29-M38).

The phases are INITIALIZE, ITERATE, EXPIRE and TERMINATE. An aggregate may have two versions: the base version
covers all tuples, and the window version a sliding window. `inwindow` is the table of the tuples in the
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from slicemill import types as t
from slicemill.binder.context import BrokenDependency, Context, ErrorCollector
from slicemill.binder.expressions import bind, bind_condition
from slicemill.binder.functions import import_object, refuse_function, split_object_name
from slicemill.binder.relations import RelationEnvironment, bind_relation
from slicemill.binder.scope import Scope
from slicemill.binder.table_writes import split_table_writes
from slicemill.binder.types import bind_columns, bind_type
from slicemill.catalog.aggregates import (
    INWINDOW,
    RETURN,
    AggregateDefinition,
    BodyState,
    Delete,
    Insert,
    LocalTable,
    Statement,
    Update,
    While,
    changes_in,
)
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.catalog import INTO, Table
from slicemill.catalog.expressions import Argument, Call, ColumnRef, Expr, Oldest, conjuncts
from slicemill.errors import did_you_mean, format_count, one_of
from slicemill.functions.signatures import SCALARS
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import Column, Kind, Schema, Type, assignable


def bind_aggregate(node: nodes.CreateAggregate, context: Context) -> AggregateDefinition:
    definition = _bind(node, context)
    called = context.catalog.callables.get(definition.name.lower())
    if called is not None:
        raise StatementError(
            f"there is a {called.kind.lower()} {definition.name} already",
            span_of(node.this),
            f"choose another name, or DROP {called.kind} {definition.name} first",
        )
    refuse_function(node.this, context)
    base, window = context.catalog.declared_versions(definition.name)
    if (window if definition.window else base) is not None:
        raise StatementError(
            f"there is {'a window' if definition.window else 'a base'} version of {definition.name} already",
            span_of(node.this),
            f"choose another name, or DROP AGGREGATE {definition.name} first",
        )
    return definition


def _bind(node: nodes.CreateAggregate, context: Context) -> AggregateDefinition:
    name = node.this.name
    if INTO in name.lower():
        hint = "that is what an aggregate writes into a table; choose another name"
        raise StatementError(f"{name} is no name of an aggregate", span_of(node.this), hint)
    if name.lower() in SCALARS:
        raise StatementError(
            f"{name} is a scalar function already", span_of(node.this), "choose another name"
        )
    problems = ErrorCollector()
    arguments = returns = Schema(())
    with problems.collect():
        arguments = bind_columns(child(node, "arguments"))
    with problems.collect():
        returns = _returns(node, name)
    problems.raise_any()
    _check_versions(node, arguments, returns, context)
    if child(node, "external") is not None:
        return _external(node, arguments, returns, context.imports)
    tables = _bind_tables(node, arguments, problems)
    has_inwindow = any(table.name.lower() == INWINDOW for table in tables)
    states = [state.name for body in child(node, "bodies") for state in child(body, "states")]
    # The word WINDOW may be omitted if EXPIRE or inwindow implies WINDOW, as in published ESL.
    window = bool(child(node, "window")) or has_inwindow or BodyState.EXPIRE.value in states
    _check_states(node, states, window)
    itself = AggregateDefinition(name, arguments, returns, window, algebraic=False)
    body_binder = _BodyBinder(_context_with_itself(itself, context), arguments, returns, tables)
    bodies: dict[BodyState, tuple[Statement, ...]] = {}
    for body in child(node, "bodies"):
        bound: list[Statement] = []
        body_states = [BodyState(state.name) for state in child(body, "states")]
        for statement in child(body, "statements"):
            with problems.collect():
                bound.append(body_binder.statement(statement))
                warn_of_statement(
                    bound[-1], body_states, statement, arguments, body_binder.inwindow, body_binder.context
                )
        for state in body_states:
            bodies[state] = tuple(bound)
    problems.raise_any()
    defined = AggregateDefinition(
        name=name,
        arguments=arguments,
        returns=returns,
        window=window,
        algebraic=bool(child(node, "algebraic")),
        tables=tuple(tables),
        bodies=bodies,
    )
    defined = split_table_writes(defined, body_binder.stored, node.this)
    if window:
        warn_of_silence(node.this, defined.bodies, defined.algebraic, context)
    return defined


def _context_with_itself(itself: AggregateDefinition, context: Context) -> Context:
    """Return a context in which an aggregate's statements may call the aggregate itself.

    If the aggregate replaces a built-in, a call of that name in the body calls the built-in (M29).
    """
    if itself.name.lower() in BUILTINS:
        return context
    catalog = context.catalog.copy()
    catalog.add(itself)
    return replace(context, catalog=catalog)


def _check_versions(
    node: nodes.CreateAggregate, arguments: Schema, returns: Schema, context: Context
) -> None:
    """Check the return types of an aggregate.

    An ALGEBRAIC aggregate must be able to take its results as arguments (M35). The aggregate over all tuples
    and the aggregate over windows of one name must have equal return types.
    """
    combines = len(arguments) == len(returns) and all(
        assignable(argument.type, result.type) for argument, result in zip(arguments, returns, strict=True)
    )
    if child(node, "algebraic") and not combines:
        raise StatementError(
            f"{node.this.name} cannot take what it returns, so results of parts cannot be combined",
            span_of(node.this),
            "leave ALGEBRAIC out, or return what the arguments are",
        )
    for other in context.catalog.declared_versions(node.this.name):
        if other is not None and [c.type for c in other.returns] != [c.type for c in returns]:
            raise StatementError(
                f"the other version of {other.name} returns {_types(other.returns)}, "
                f"this one {_types(returns)}",
                span_of(node.this),
                "let both return the same",
            )


def _types(schema: Schema) -> str:
    return ", ".join(str(column.type) for column in schema)


def _returns(node: nodes.CreateAggregate, name: str) -> Schema:
    returns = child(node, "returns")
    if isinstance(returns[0], nodes.TypeName):
        return Schema((Column(name, bind_type(returns[0])),))
    return bind_columns(returns)


def _bind_tables(
    node: nodes.CreateAggregate, arguments: Schema, problems: ErrorCollector
) -> list[LocalTable]:
    tables: list[LocalTable] = []
    for table in child(node, "tables"):
        with problems.collect():
            name = table.this.name
            if name.upper() == RETURN:
                raise StatementError("RETURN is the target of results and cannot be declared", span_of(table))
            if name.lower() in {known.name.lower() for known in tables}:
                raise StatementError(f"{name} is declared twice", span_of(table), "give it another name")
            if name.lower() == INWINDOW:
                tables.append(LocalTable(INWINDOW, _inwindow_schema(table, arguments)))
            else:
                tables.append(LocalTable(name, bind_columns(child(table, "columns"))))
    return tables


def _inwindow_schema(table: nodes.LocalTableDeclaration, arguments: Schema) -> Schema:
    """Return the schema of `inwindow`, the table of tuples in the window (M32).

    The columns are the aggregate's arguments under new names. The types of the columns may be omitted.
    """
    declared = bind_columns(child(table, "columns"))
    if len(declared) != len(arguments):
        raise StatementError(
            f"inwindow has {format_count(len(declared), 'column')}, the aggregate "
            f"{format_count(len(arguments), 'argument')}",
            span_of(table),
            "give it one column per argument",
        )
    columns = []
    for column, argument in zip(declared, arguments, strict=True):
        if not assignable(column.type, argument.type):
            raise StatementError(
                f"{column.name} is {column.type}, but the argument {argument.name} is {argument.type}",
                span_of(table),
                "leave the type out",
            )
        columns.append(Column(column.name, argument.type if column.type is t.ANY else column.type))
    return Schema(tuple(columns))


def _check_states(node: nodes.CreateAggregate, states: list[str], window: bool) -> None:
    for state in set(states):
        if states.count(state) > 1:
            raise StatementError(
                f"{state} is given twice", span_of(node.this), "put the statements into one body"
            )
    for state in (BodyState.INITIALIZE, BodyState.ITERATE):
        if state.value not in states:
            raise StatementError(
                f"{node.this.name} has no {state.value}", span_of(node.this), f"add {state.value}: {{ … }}"
            )
    if window and BodyState.TERMINATE.value in states:
        raise StatementError(
            f"{node.this.name} is a window aggregate, which never ends",
            span_of(node.this),
            "leave TERMINATE out, and return in INITIALIZE, ITERATE or EXPIRE",
        )


def _external(
    node: nodes.CreateAggregate, arguments: Schema, returns: Schema, imports: bool
) -> AggregateDefinition:
    literal = child(node, "external")
    module, name = split_object_name(
        literal, "a Python aggregate is named module:class", "'mypackage.stats:Median'"
    )
    window = bool(child(node, "window"))
    made = _check_methods(import_object(literal, module, name), name, window, literal) if imports else None
    return AggregateDefinition(
        name=node.this.name,
        arguments=arguments,
        returns=returns,
        window=window,
        algebraic=bool(child(node, "algebraic")),
        external=literal.name,
        external_terminates=not window and callable(getattr(made, "terminate", None)),
    )


def _check_methods(made: object, name: str, window: bool, literal: exp.Literal) -> object:
    """Check that a Python class has the methods that an aggregate needs."""
    wanted = ("initialize", "iterate", "expire") if window else ("initialize", "iterate")
    missing = [method for method in wanted if not callable(getattr(made, method, None))]
    if missing:
        raise StatementError(f"{name} has no method {one_of(missing)}", span_of(literal))
    return made


class _BodyBinder:
    """Binder of the statements of all phases of one aggregate."""

    def __init__(
        self, context: Context, arguments: Schema, returns: Schema, tables: list[LocalTable]
    ) -> None:
        self.context = replace(context, in_body=True)
        self.arguments = arguments
        self.returns = returns
        self.tables = {table.name.lower(): table.schema for table in tables}
        self.names = {table.name.lower(): table.name for table in tables}
        self.inwindow = self.tables.get(INWINDOW)
        self.stored: dict[str, Schema] = {}  # tables of the catalog that the statements insert into

    def statement(self, node: exp.Expression) -> Statement:
        if isinstance(node, nodes.InsertInto):
            return self._insert(node)
        if isinstance(node, nodes.UpdateSet):
            return self._update(node)
        if isinstance(node, nodes.WhileLoop):
            condition = bind_condition(node.this, self._environment())
            return While(condition, tuple(self.statement(inner) for inner in child(node, "statements")))
        assert isinstance(node, nodes.DeleteFrom), "the grammar has no other statements"
        name, schema = self._table(node.this)
        return Delete(name, self._where(node, self._environment(name, schema)))

    def _environment(self, alias: str = "", schema: Schema | None = None) -> RelationEnvironment:
        relations = ((alias, schema),) if schema is not None else ()
        scope = Scope(relations, qualified=True, arguments=self.arguments)
        return RelationEnvironment(self.context, scope, self.tables, self.inwindow, place="this statement")

    def _where(self, node: exp.Expression, env: RelationEnvironment) -> Expr | None:
        where = child(node, "where")
        return bind_condition(where, env) if where is not None else None

    def _table(self, identifier: exp.Identifier) -> tuple[str, Schema]:
        key = identifier.name.lower()
        if key in self.tables:
            return self.names[key], self.tables[key]
        if key == RETURN.lower():
            raise StatementError(
                "results can only be inserted into RETURN",
                span_of(identifier),
                "keep what you need in a TABLE",
            )
        hint = did_you_mean(identifier.name, self.names.values())
        stored = self.context.catalog.relation(identifier.name)
        if isinstance(stored, Table):
            inserted = "a row with the key of another takes its place" if stored.key else "it has no key"
            raise StatementError(
                f"an aggregate inserts into table {stored.name}, and changes it in no other way"
                if stored.owns_rows
                else f"table {stored.name} has no rows of its own to be changed",
                span_of(identifier),
                f"INSERT INTO {stored.name}: {inserted}"
                if stored.owns_rows
                else "insert into a table that is declared with its columns, and without a source",
            )
        if stored is None and identifier.name.lower() in self.context.broken:
            raise BrokenDependency
        raise StatementError(
            f"there is no table {identifier.name} in this aggregate",
            span_of(identifier),
            hint or f"declare TABLE {identifier.name}(…);",
        )

    def _insert(self, node: nodes.InsertInto) -> Insert:
        into = self._stored(node.this)
        if node.this.name.upper() == RETURN:
            table, schema = RETURN, self.returns
        elif into is not None:
            table, schema = into.name, into.schema
        else:
            table, schema = self._table(node.this)
            if table == INWINDOW:
                raise StatementError(
                    "rows cannot be inserted into inwindow",
                    span_of(node.this),
                    "keep rows of your own in another TABLE",
                )
        order = self._column_order(node, schema)
        query_node = child(node, "query")
        if query_node is not None:
            env = self._environment()
            query = bind_relation(query_node, self.context, self.tables, self.inwindow, env.scope)
            self._check_row([c.type for c in query.schema], schema, query_node)
            if order != list(range(len(schema))):
                raise StatementError(
                    "select the columns in the table's order", span_of(node), "leave the list out"
                )
            return Insert(table, query=query, stored=into is not None)
        env = self._environment()
        rows = []
        for row_node in child(node, "values"):
            values = [bind(value, env) for value in row_node.expressions]
            self._check_row([v.type for v in values], schema, row_node, order)
            rows.append(tuple(values[order.index(place)] for place in range(len(schema))))
        return Insert(table, rows=tuple(rows), where=self._where(node, env), stored=into is not None)

    def _stored(self, identifier: exp.Identifier) -> Table | None:
        """Return the table of the catalog that is the target of an INSERT, or None."""
        name = identifier.name
        known = name.lower() in self.tables or name.upper() == RETURN
        found = None if known else self.context.catalog.relation(name)
        if not isinstance(found, Table) or not found.owns_rows:
            return None
        self.stored[found.name] = found.schema
        return found

    def _column_order(self, node: nodes.InsertInto, schema: Schema) -> list[int]:
        """Return the index of the table column for each value of an INSERT."""
        listed = child(node, "columns")
        if listed is None:
            return list(range(len(schema)))
        order = []
        for identifier in listed:
            column = schema.find(identifier.name)
            if column is None:
                raise StatementError(f"there is no column {identifier.name}", span_of(identifier))
            order.append(schema.index(column.name))
        if sorted(order) != list(range(len(schema))):
            raise StatementError("give every column of the table once", span_of(node))
        return order

    def _check_row(
        self, types: list[Type], schema: Schema, node: exp.Expression, order: list[int] | None = None
    ) -> None:
        if len(types) != len(schema):
            raise StatementError(
                f"{format_count(len(types), 'value')} for {format_count(len(schema), 'column')}",
                span_of(node),
                f"the columns are {schema}",
            )
        for index, type_ in enumerate(types):
            column = schema.columns[order[index] if order is not None else index]
            if not assignable(column.type, type_):
                raise StatementError(f"{column.name} is {column.type}, this is {type_}", span_of(node))
            if schema is not self.returns:
                warn_of_cut_fractions(column, type_, node, self.context)

    def _update(self, node: nodes.UpdateSet) -> Update:
        name, schema = self._table(node.this)
        if name == INWINDOW:
            raise StatementError("tuples in the window cannot be changed", span_of(node), "DELETE is allowed")
        env = self._environment(name, schema)
        assignments = []
        for assignment in child(node, "assignments"):
            column = schema.find(assignment.this.name)
            if column is None:
                hint = did_you_mean(assignment.this.name, schema.names)
                raise StatementError(
                    f"{name} has no column {assignment.this.name}", span_of(assignment.this), hint
                )
            value = bind(assignment.expression, env)
            if not assignable(column.type, value.type):
                raise StatementError(
                    f"{column.name} is {column.type}, this is {value.type}", span_of(assignment)
                )
            warn_of_cut_fractions(column, value.type, assignment, self.context)
            assignments.append((column.name, value))
        return Update(name, tuple(assignments), self._where(node, env))


# Warnings about aggregates that are valid but probably wrong


_WHOLE = (Kind.INT, Kind.BIGINT)
_FRACTIONAL = (Kind.DOUBLE, Kind.DECIMAL)
_HOLDS_FOR_EQUALS = ("<=", ">=", "=")


def warn_of_cut_fractions(column: Column, given: Type, node: exp.Expression, context: Context) -> None:
    """Warn if an integer column truncates a fractional value."""
    if column.type.kind in _WHOLE and given.kind in _FRACTIONAL:
        context.warn(
            f"{column.name} is {column.type}, this is {given}: what is behind the point is cut off",
            span_of(node),
            f"declare {column.name} as REAL",
        )


def warn_of_statement(
    statement: Statement,
    states: Sequence[BodyState],
    node: exp.Expression,
    arguments: Schema,
    inwindow: Schema | None,
    context: Context,
) -> None:
    """Warn of window-aggregate statements that mishandle the current tuple.

    The current tuple is the expiring tuple in EXPIRE, and the arriving tuple in all other phases.
    """
    if inwindow is None:
        return
    arrives = BodyState.INITIALIZE in states or BodyState.ITERATE in states
    if arrives and isinstance(statement, Delete) and _deletes_the_newest(statement, arguments, inwindow):
        context.warn(
            "the tuple that has come is in inwindow already, and this deletes it too: "
            "where it was the last one, oldest() is NULL",
            span_of(node),
            "compare with < or >",
        )
    if BodyState.EXPIRE in states and isinstance(statement, Insert) and statement.table == RETURN:
        values = [value for row in statement.rows for value in row]
        if values and all(isinstance(value, Oldest) for value in values):
            context.warn(
                "in EXPIRE, oldest() is the tuple that leaves, not the oldest of those that stay",
                span_of(node),
                "DELETE it from inwindow first, and SELECT from what is left",
            )


def warn_of_silence(
    name: exp.Identifier, bodies: dict[BodyState, tuple[Statement, ...]], algebraic: bool, context: Context
) -> None:
    """Warn of an ALGEBRAIC aggregate without INSERT INTO RETURN in ITERATE.

    With SLIDE, the result of a window is the row that ITERATE returns for its last tuple (M34).
    """
    iterates = changes_in(bodies.get(BodyState.ITERATE, ()))
    if algebraic and not any(isinstance(s, Insert) and s.table == RETURN for s in iterates):
        context.warn(
            f"ITERATE of {name.name} returns nothing: with SLIDE, and in a window without it, only the first "
            "tuple of a partition gets a result",
            span_of(name),
            "INSERT INTO RETURN in ITERATE too",
        )


def _deletes_the_newest(statement: Delete, arguments: Schema, inwindow: Schema) -> bool:
    """Return True if a DELETE FROM inwindow also removes the tuple that just arrived."""
    return (
        statement.table == INWINDOW
        and statement.where is not None
        and all(_holds_for_itself(part, arguments, inwindow) for part in conjuncts(statement.where))
    )


def _holds_for_itself(condition: Expr, arguments: Schema, inwindow: Schema) -> bool:
    if not isinstance(condition, Call) or condition.function not in _HOLDS_FOR_EQUALS:
        return False
    places = [_column_index(side, arguments, inwindow) for side in condition.arguments]
    kinds = {type(side) for side in condition.arguments}
    return kinds == {Argument, ColumnRef} and None not in places and places[0] == places[1]


def _column_index(side: Expr, arguments: Schema, inwindow: Schema) -> int | None:
    """Return the index of an argument, or of a column of the table inwindow, or None."""
    if isinstance(side, Argument):
        return arguments.index(side.name)
    if isinstance(side, ColumnRef) and inwindow.find(side.name.removeprefix(f"{INWINDOW}.")) is not None:
        return inwindow.index(side.name.removeprefix(f"{INWINDOW}."))
    return None
