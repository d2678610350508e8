"""Interpreter of ESL statements over an aggregate's local tables (M29, M32).

Statements are atomic: all conditions and values are computed from the tables as they were before the
statement. Values are converted to the declared type of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from slicemill.aggregate.definition import Returned
from slicemill.aggregate.interpreter.relations import (
    Lookup,
    QueryEnvironment,
    Source,
    assignment,
    columns_of,
    compile_condition_in_query,
    compile_in_query,
    compile_query,
)
from slicemill.aggregate.inwindow import Args, Inwindow
from slicemill.esl.types.aggregate import (
    INWINDOW,
    RETURN,
    AggregateDefinition,
    BodyState,
    Delete,
    Insert,
    Statement,
    Update,
    While,
)
from slicemill.esl.types.schema import ANY, Schema
from slicemill.rows import Row
from slicemill.scalar.values import ExpressionError

MOST_ROUNDS = 100_000


def row_converter(schema: Schema) -> Callable[[Args], Row]:
    """Return a conversion of values of any type to a schema's types."""
    convert = [assignment(ANY, column.type) for column in schema]
    return lambda args: tuple(to(value) for to, value in zip(convert, args, strict=True))


class BodyContext:
    """Data of a running aggregate: arguments, tables, window and RETURN.

    The row list of a table is replaced, never mutated, so every reference to it is a snapshot. `outside`
    returns the stored tables, which a body may read too.
    """

    __slots__ = ("_inwindow_schema", "_to_inwindow", "arguments", "inwindow", "outside", "returned", "tables")

    def __init__(self, definition: AggregateDefinition, inwindow: Inwindow | None, outside: Source) -> None:
        schemas = {table.name: table.schema for table in definition.tables}
        self._inwindow_schema = schemas.pop(INWINDOW, Schema(()))
        self._to_inwindow = row_converter(self._inwindow_schema)
        self.tables: dict[str, list[Row]] = {name.lower(): [] for name in schemas}
        self.arguments: dict[str, object] = dict.fromkeys(definition.arguments.names)
        self.inwindow = inwindow if INWINDOW in {table.name for table in definition.tables} else None
        self.outside = outside
        self.returned: Returned = []

    def environment(self) -> QueryEnvironment:
        oldest = self.inwindow.oldest() if self.inwindow is not None else None
        named = (
            {}
            if oldest is None
            else dict(zip(self._inwindow_schema.names, self.window_row(oldest), strict=True))
        )
        return QueryEnvironment(self.rows, arguments=self.arguments, oldest=named, stored=self.outside)

    def rows(self, relation: str) -> Iterable[Row]:
        if relation.lower() in self.tables:
            return self.tables[relation.lower()]
        if relation.lower() == INWINDOW and self.inwindow is not None:
            return map(self.window_row, self.inwindow)
        return self.outside(relation)

    def window_row(self, args: Args) -> Row:
        """Return a window tuple in the declared types of inwindow."""
        return self._to_inwindow(args)


Step: TypeAlias = Callable[[BodyContext], None]
Program: TypeAlias = dict[BodyState, list[Step]]
# Position of a statement in the body of a state: the indexes of the enclosing loops, then its own index.
StatementPath: TypeAlias = tuple[int, ...]
ROUNDS, CONDITION = -2, -1  # indexes in a loop, after its statements


def compile_bodies(definition: AggregateDefinition, lookup: Lookup) -> Program:
    schemas = {table.name: table.schema for table in definition.tables} | {RETURN: definition.returns}
    return {
        state: [_compile(statement, schemas, lookup) for statement in statements]
        for state, statements in definition.bodies.items()
    }


def _compile(statement: Statement, schemas: Mapping[str, Schema], lookup: Lookup) -> Step:
    if isinstance(statement, While):
        return LoopStep(statement, schemas, lookup)
    schema = schemas[statement.table]
    if isinstance(statement, Insert):
        return _insert(statement, schema, lookup)
    if isinstance(statement, Update):
        return _update(statement, schema, lookup)
    return _delete(statement, schema, lookup)


class LoopStep:
    """WHILE loop.

    Its `parts` are its statements, the error for too many rounds, and its condition.
    """

    __slots__ = ("_holds", "_steps", "parts")

    def __init__(self, statement: While, schemas: Mapping[str, Schema], lookup: Lookup) -> None:
        self._holds = compile_condition_in_query(statement.condition, lookup)
        self._steps = [_compile(inner, schemas, lookup) for inner in statement.statements]
        self.parts: list[Step] = [*self._steps, _too_many_rounds, self._condition]

    def _condition(self, body: BodyContext) -> None:
        self._holds(body.environment())

    def __call__(self, body: BodyContext) -> None:
        rounds = 0
        while self._holds(body.environment()):
            if rounds == MOST_ROUNDS:
                _too_many_rounds(body)
            rounds += 1
            for step in self._steps:
                step(body)


def _too_many_rounds(_: BodyContext) -> None:
    raise ExpressionError(f"a WHILE has gone round {MOST_ROUNDS:,} times for one tuple, and goes on")


def _insert(statement: Insert, schema: Schema, lookup: Lookup) -> Step:
    rows_of = _inserted(statement, schema, lookup)
    table = statement.table.lower()
    if statement.table != RETURN:

        def insert(body: BodyContext) -> None:
            body.tables[table] = [*body.tables[table], *rows_of(body.environment())]

        return insert

    def give_back(body: BodyContext) -> None:
        rows = rows_of(body.environment())
        body.returned += rows if len(schema) > 1 else [row[0] for row in rows]

    return give_back


def _inserted(statement: Insert, schema: Schema, lookup: Lookup) -> Callable[[QueryEnvironment], list[Row]]:
    if statement.query is not None:
        query = compile_query(statement.query, lookup)
        convert = [
            assignment(given.type, column.type)
            for given, column in zip(statement.query.schema, schema, strict=True)
        ]
        return lambda env: [tuple(to(v) for to, v in zip(convert, row, strict=True)) for row in query(env)]
    allowed = compile_condition_in_query(statement.where, lookup)
    rows = [
        [
            (compile_in_query(expr, lookup), assignment(expr.type, column.type))
            for expr, column in zip(row, schema, strict=True)
        ]
        for row in statement.rows
    ]

    def values(env: QueryEnvironment) -> list[Row]:
        return [tuple(to(value(env)) for value, to in row) for row in rows] if allowed(env) else []

    return values


def _update(statement: Update, schema: Schema, lookup: Lookup) -> Step:
    table = statement.table.lower()
    selects = compile_condition_in_query(statement.where, lookup)
    changes = {
        schema.index(name): (
            compile_in_query(expr, lookup),
            assignment(expr.type, schema.columns[schema.index(name)].type),
        )
        for name, expr in statement.assignments
    }

    def changed(row: Row, env: QueryEnvironment) -> Row:
        inside = env.around(columns_of(statement.table, schema, row))
        if not selects(inside):
            return row
        new = list(row)
        for place, (value, to) in changes.items():
            new[place] = to(value(inside))
        return tuple(new)

    def update(body: BodyContext) -> None:
        env = body.environment()
        body.tables[table] = [changed(row, env) for row in body.tables[table]]

    return update


def _delete(statement: Delete, schema: Schema, lookup: Lookup) -> Step:
    table = statement.table.lower()
    selects = compile_condition_in_query(statement.where, lookup)

    def selected(row: Row, env: QueryEnvironment) -> bool:
        return selects(env.around(columns_of(statement.table, schema, row)))

    def delete(body: BodyContext) -> None:
        env = body.environment()
        body.tables[table] = [row for row in body.tables[table] if not selected(row, env)]

    def delete_from_window(body: BodyContext) -> None:
        env = body.environment()
        assert body.inwindow is not None, "a body that names inwindow has declared it"
        body.inwindow.delete(lambda args: selected(body.window_row(args), env))

    return delete_from_window if statement.table == INWINDOW else delete
