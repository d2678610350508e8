"""Interpreter of user-defined aggregates and of queries, row by row (M29, M32).

An aggregate written in ESL (slicemill's SQL) has a list of statements for each routine: INITIALIZE, ITERATE,
EXPIRE and TERMINATE. The statements read and change local tables. They are atomic: all conditions and values
are computed from the tables as they were before the statement. Values are converted to the declared type of
their column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeAlias, cast

from slicemill.aggregates import definition as aggregate
from slicemill.aggregates.definition import Returned
from slicemill.aggregates.frames import Args, Inwindow
from slicemill.catalog.aggregates import (
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
from slicemill.catalog.expressions import Argument, ColumnRef, ExistsQuery, Expr, Oldest
from slicemill.catalog.queries import AggregateCall as BoundCall
from slicemill.catalog.queries import RelationInput, RelationQuery
from slicemill.errors import SlicemillError
from slicemill.functions.casts import converter
from slicemill.functions.rows import Leaf, compile_with
from slicemill.functions.values import ExpressionError
from slicemill.types import ANY, Kind, Row, Schema, Type

MOST_ROUNDS = 100_000


def row_converter(schema: Schema) -> Callable[[Args], Row]:
    """Return a function that converts values of any type to the column types of a schema."""
    convert = [assignment(ANY, column.type) for column in schema]
    return lambda args: tuple(to(value) for to, value in zip(convert, args, strict=True))


class BodyContext:
    """Data of one accumulator of an ESL aggregate: arguments, local tables, window and returned rows.

    The row list of a local table is replaced, never mutated, so every reference to a list is a snapshot.
    `outside` returns the rows of stored tables, which statements may read too.
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
        """Convert a tuple of the window to the declared column types of the table `inwindow`."""
        return self._to_inwindow(args)


Step: TypeAlias = Callable[[BodyContext], None]
Program: TypeAlias = dict[BodyState, list[Step]]
# Position of a statement in a routine: the indexes of the enclosing WHILE loops, and its own index
StatementPath: TypeAlias = tuple[int, ...]
# Indexes that stand for a WHILE loop's error for too many rounds, and for its condition
ROUNDS, CONDITION = -2, -1


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
    """Compiled WHILE loop of an aggregate.

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
    raise ExpressionError(f"a WHILE loop has not ended after {MOST_ROUNDS:,} rounds for one tuple")


def _insert(statement: Insert, schema: Schema, lookup: Lookup) -> Step:
    rows_of = _compile_insert_rows(statement, schema, lookup)
    table = statement.table.lower()
    if statement.table != RETURN:

        def insert(body: BodyContext) -> None:
            body.tables[table] = [*body.tables[table], *rows_of(body.environment())]

        return insert

    def give_back(body: BodyContext) -> None:
        rows = rows_of(body.environment())
        body.returned += rows if len(schema) > 1 else [row[0] for row in rows]

    return give_back


def _compile_insert_rows(
    statement: Insert, schema: Schema, lookup: Lookup
) -> Callable[[QueryEnvironment], list[Row]]:
    if statement.query is not None:
        query = compile_query(statement.query, lookup)
        convert = [
            assignment(source.type, column.type)
            for source, column in zip(statement.query.schema, schema, strict=True)
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
        for index, (value, to) in changes.items():
            new[index] = to(value(inside))
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
        assert body.inwindow is not None, "an aggregate that uses inwindow has declared it"
        body.inwindow.delete(lambda args: selected(body.window_row(args), env))

    return delete_from_window if statement.table == INWINDOW else delete


# Evaluation of queries over tables by SQL's definition: cross product, WHERE, groups, HAVING, ORDER BY (M29)
#
# A query is compiled to a function once. Statements of an aggregate or an ad hoc query evaluate the function.
# An environment has the values of the names in expressions. An inner query can read the columns of its outer
# queries. Columns of the inner query with the same names hide them.
#
# As on a stream, an aggregate returns rows at each tuple and in TERMINATE. So an aggregate over a table of n
# rows may return n rows.

# Function from the name of a table to its rows
Source: TypeAlias = Callable[[str], Iterable[Row]]
# Function from the name of an aggregate, and a flag for DISTINCT, to the aggregate
Lookup: TypeAlias = Callable[[str, bool], aggregate.RowAggregate]

_TIMES = (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.MONTHS)


def no_tables(name: str) -> Iterable[Row]:
    """Raise an error for a table that is read in a context without tables."""
    raise SlicemillError(f"table {name} cannot be read here: its rows are not available")


@dataclass(frozen=True, slots=True)
class QueryEnvironment:
    """Values of the names in expressions: columns of current and outer rows, arguments, oldest tuple.

    `source` returns the rows of tables, and `stored` those of stored tables only. Local tables of an
    aggregate may hide stored tables in `source`. The columns of `oldest`, the oldest tuple of the window, are
    NULL if the window is empty.
    """

    source: Source
    columns: Mapping[str, object] = field(default_factory=dict)
    arguments: Mapping[str, object] = field(default_factory=dict)
    oldest: Mapping[str, object] = field(default_factory=dict)
    stored: Source | None = None

    def column(self, name: str) -> object:
        try:
            return self.columns[name]
        except KeyError:
            raise SlicemillError(
                f"column {name} has no single value here: an inner query reads it from a row outside that is "
                f"grouped; add {name} to the GROUP BY outside"
            ) from None

    def around(self, columns: Mapping[str, object]) -> QueryEnvironment:
        """Return the environment of expressions over a row, whose columns hide outer columns."""
        return replace(self, columns={**self.columns, **columns})


Getter: TypeAlias = Callable[[QueryEnvironment], object]
CompiledQuery: TypeAlias = Callable[[QueryEnvironment], list[Row]]


def compile_in_query(expr: Expr, lookup: Lookup) -> Getter:
    """Compile an expression with its sub-queries to a function of the values of its names."""

    def resolve(leaf: Leaf) -> Getter:
        if isinstance(leaf, ColumnRef):
            return lambda env: env.column(leaf.name)
        if isinstance(leaf, Argument):
            return lambda env: env.arguments[leaf.name]
        if isinstance(leaf, Oldest):
            return lambda env: env.oldest.get(leaf.column)
        rows_of = compile_query(leaf.query, lookup)
        if isinstance(leaf, ExistsQuery):
            return lambda env: bool(rows_of(env))
        return lambda env: _single_value(rows_of(env))

    return compile_with(expr, resolve)


def compile_condition_in_query(expr: Expr | None, lookup: Lookup) -> Callable[[QueryEnvironment], bool]:
    """Compile a WHERE condition. NULL is false, and a missing condition is true."""
    if expr is None:
        return lambda _env: True
    value = compile_in_query(expr, lookup)
    return lambda env: value(env) is True


def assignment(source: Type, target: Type) -> Callable[[object], object]:
    """Return a function that converts a value to the declared type of a column or argument.

    Numbers are converted, strings are truncated. If the source type is ANY, an integer is accepted as a time,
    because times are represented as integers.
    """
    return (
        _time_check(target)
        if source.kind is Kind.ANY and target.kind in _TIMES
        else converter(source, target)
    )


def _time_check(type_: Type) -> Callable[[object], object]:
    def check(value: object) -> object:
        if value is not None and type(value) is not int:
            raise SlicemillError(f"{value!r} is not a {type_}: times are integers, in microseconds or days")
        return value

    return check


def columns_of(alias: str, schema: Schema, row: Row) -> dict[str, object]:
    """Return the values of a row's columns by their names in expressions, such as `t.x`."""
    return {f"{alias}.{name}": value for name, value in zip(schema.names, row, strict=True)}


def compile_query(query: RelationQuery, lookup: Lookup) -> CompiledQuery:
    """Compile a query to a function that returns its rows, given the values of outer names."""
    joined = _compile_inputs(query.inputs, lookup)
    selected = compile_condition_in_query(query.where, lookup)
    grouped = _compile_groups(query, lookup) if query.group_by or query.aggregates else None
    having = compile_condition_in_query(query.having, lookup)
    items = [compile_in_query(item.expr, lookup) for item in query.items]
    order = [(_sort_key(compile_in_query(expr, lookup)), descending) for expr, descending in query.order_by]

    def rows(env: QueryEnvironment) -> list[Row]:
        inside = [row for row in joined(env) if selected(row)]
        if grouped is not None:
            inside = [group for group in grouped(env, inside) if having(group)]
        for key, descending in reversed(order):  # the sort is stable, so the first key is the last to sort by
            inside.sort(key=key, reverse=descending)
        out = [tuple(item(row) for item in items) for row in inside]
        if query.distinct:
            out = _distinct(out)
        return out if query.limit is None else out[: query.limit]

    return rows


def _compile_inputs(
    inputs: Sequence[RelationInput], lookup: Lookup
) -> Callable[[QueryEnvironment], Iterator[QueryEnvironment]]:
    """Compile the cross product of a query's inputs (FROM).

    The compiled function yields one environment per combination of rows. Without inputs, it yields one
    environment.
    """
    readers = [_compile_input(entry, lookup) for entry in inputs]

    def joined(env: QueryEnvironment) -> Iterator[QueryEnvironment]:
        for rows in product(*(reader(env) for reader in readers)):
            yield env.around({name: value for row in rows for name, value in row.items()})

    def joined_with_table_functions(env: QueryEnvironment) -> Iterator[QueryEnvironment]:
        """Yield the cross product, with table functions called for each combination of preceding rows."""
        combinations = [env]
        for entry, reader in zip(inputs, readers, strict=True):
            fixed = reader(env) if entry.arguments is None else None
            combinations = [
                outer.around(row)
                for outer in combinations
                for row in (fixed if fixed is not None else reader(outer))
            ]
        return iter(combinations)

    return joined if all(entry.arguments is None for entry in inputs) else joined_with_table_functions


def _compile_input(
    entry: RelationInput, lookup: Lookup
) -> Callable[[QueryEnvironment], list[dict[str, object]]]:
    """Compile one input of a query (table, sub-query or table function) to a function that returns its rows.

    A sub-query can read columns of outer queries, but not columns of the other inputs.
    """
    if entry.query is not None and entry.arguments is not None:
        call, arguments = compile_table_call(entry.query, lookup), entry.arguments
        values = [(name, compile_in_query(value, lookup)) for name, value in arguments]

        def called(env: QueryEnvironment) -> list[dict[str, object]]:
            rows = call(env.stored or env.source, {name: value(env) for name, value in values})
            return [columns_of(entry.alias, entry.schema, row) for row in rows]

        return called
    if entry.queries:
        compiled = [compile_query(query, lookup) for query in entry.queries]
        return lambda env: [
            columns_of(entry.alias, entry.schema, row) for rows_of in compiled for row in rows_of(env)
        ]

    return lambda env: [columns_of(entry.alias, entry.schema, row) for row in env.source(entry.relation)]


def compile_table_call(
    query: RelationQuery, lookup: Lookup
) -> Callable[[Source, Mapping[str, object]], list[Row]]:
    """Compile the query of a table function, which reads only stored tables and its arguments."""
    rows_of = compile_query(query, lookup)
    return lambda stored, values: rows_of(QueryEnvironment(stored, arguments=values))


def _compile_groups(
    query: RelationQuery, lookup: Lookup
) -> Callable[[QueryEnvironment, list[QueryEnvironment]], list[QueryEnvironment]]:
    """Compile GROUP BY and the aggregates of a query.

    The compiled function returns, for the rows that WHERE has selected, one environment per output row.
    """
    keys = [compile_in_query(item.expr, lookup) for item in query.group_by]
    calls = [_compile_call(call, lookup) for call in query.aggregates]
    columns = [column for call in query.aggregates for column in call.columns]
    names = [*(item.name for item in query.group_by), *(column.name for column in columns)]
    # Results of aggregates are converted to their declared types, for example to the scale of a DECIMAL.
    convert = [assignment(ANY, item.expr.type) for item in query.group_by]
    convert += [assignment(ANY, column.type) for column in columns]
    inner_names = {f"{entry.alias}.{name}" for entry in query.inputs for name in entry.schema.names}
    # Inner queries refer to a grouped column by its name in the input row.
    aliases = {item.expr.name: item.name for item in query.group_by if isinstance(item.expr, ColumnRef)}

    def group_of(row: Row) -> Row:
        return tuple(key(cast(QueryEnvironment, row[0])) for key in keys)

    def groups(env: QueryEnvironment, inside: list[QueryEnvironment]) -> list[QueryEnvironment]:
        visible = replace(env, columns={n: v for n, v in env.columns.items() if n not in inner_names})
        out = []
        for row in _evaluate_groups(calls, group_of if keys else None, [(row,) for row in inside]):
            named = {n: c(value) for n, c, value in zip(names, convert, row, strict=True)}
            out.append(visible.around(named | {alias: named[name] for alias, name in aliases.items()}))
        return out

    return groups


def _evaluate_groups(
    calls: Sequence[aggregate.RowCall], group_of: Callable[[Row], Row] | None, rows: list[Row]
) -> list[Row]:
    """Evaluate aggregates per group. Return rows of group keys and aggregate values.

    Rows that aggregates return at tuples precede the rows that TERMINATE returns for each group. Without
    GROUP BY there is one group, even without rows.
    """
    if not calls:
        assert group_of is not None, "a grouped query has keys or calls"
        return _distinct([aggregate.normalize_zeros(group_of(row)) for row in rows])
    definitions = [call.definition for call in calls]
    bases = [aggregate.base_of(definition) for definition in definitions]
    groups: dict[Row, tuple[Row, list[aggregate.BaseAccumulator]]] = {}
    steppers: dict[Row, list[aggregate.Stepper]] = {}

    def begin(key: Row, values: Row) -> None:
        groups[key] = aggregate.normalize_zeros(values), [base() for base in bases]
        steppers[key] = [aggregate.Stepper(accumulator) for accumulator in groups[key][1]]

    out: list[Row] = []
    for row in rows:
        values = group_of(row) if group_of is not None else ()
        key = aggregate.comparable(values)
        if key not in groups:
            begin(key, values)
        steps = zip(calls, steppers[key], strict=True)
        returned = [stepper.step(call.arguments(row)) for call, stepper in steps]
        out += [groups[key][0] + columns for columns in aggregate.align(definitions, returned)]
    if group_of is None and not groups:
        begin((), ())
    for values, accumulators in groups.values():
        returned = [accumulator.terminate() for accumulator in accumulators]
        out += [values + columns for columns in aggregate.align(definitions, returned)]
    return out


def _distinct(rows: Sequence[Row]) -> list[Row]:
    first_rows: dict[Row, Row] = {}
    for row in rows:
        first_rows.setdefault(aggregate.comparable(row), row)
    return list(first_rows.values())


def _compile_call(call: BoundCall, lookup: Lookup) -> aggregate.RowCall:
    getters = [compile_in_query(argument, lookup) for argument in call.arguments]
    return aggregate.RowCall(
        lookup(call.name, call.distinct),
        lambda row: tuple(getter(cast(QueryEnvironment, row[0])) for getter in getters),
    )


def _single_value(rows: Sequence[Row]) -> object:
    if len(rows) > 1:
        raise SlicemillError(
            f"a query used as a value returned {len(rows)} rows; aggregate them, or add ORDER BY … LIMIT 1"
        )
    return rows[0][0] if rows else None


def _sort_key(getter: Getter) -> Callable[[QueryEnvironment], Any]:
    """Return a function that computes the ORDER BY key of a row. NULL sorts first, NaN sorts last."""

    def key(row: QueryEnvironment) -> tuple[int, object]:
        value = getter(row)
        if value is None:
            return (0, 0)
        return (2, 0) if value != value else (1, value)

    return key
