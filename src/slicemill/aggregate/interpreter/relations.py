"""Relational queries by SQL's definition: product, WHERE, groups, HAVING, order, DISTINCT (M29).

A query is compiled to a function once, and evaluated by the body of an aggregate or as an ad hoc query. The
environment resolves the names in expressions. An inner query can read the columns of its outer queries; its
own columns hide them. The `source` of the environment returns the rows of relations.

The result of a base aggregate is everything that it returns, at each tuple and in TERMINATE, as on a stream.
So a non-blocking aggregate over a table of n rows may return n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeAlias, cast

from slicemill.aggregate import definition as aggregate
from slicemill.errors import SlicemillError
from slicemill.esl.types.expression import Argument, ColumnRef, ExistsQuery, Expr, Oldest
from slicemill.esl.types.relation import AggregateCall as BoundCall
from slicemill.esl.types.relation import RelationInput, RelationQuery
from slicemill.esl.types.schema import ANY, Kind, Schema, Type
from slicemill.rows import Row
from slicemill.scalar.functions.casts import converter
from slicemill.scalar.rows import Leaf, compile_with

Source: TypeAlias = Callable[[str], Iterable[Row]]  # the rows of a relation, in the order of its schema
Lookup: TypeAlias = Callable[[str, bool], aggregate.RowAggregate]  # by name and DISTINCT

_TIMES = (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.MONTHS)


def no_tables(name: str) -> Iterable[Row]:
    """Raise, as the source of a context without relations."""
    raise SlicemillError(f"table {name} cannot be read here: no rows were given for it")


@dataclass(frozen=True, slots=True)
class QueryEnvironment:
    """Names in expressions: columns of current and outer rows, arguments, oldest tuple.

    The columns of `oldest` are NULL if the window is empty. `stored` returns only stored tables, whereas
    `source` may hide them by an aggregate's local tables.
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
        """Return the environment inside a row, whose columns hide outer ones."""
        return replace(self, columns={**self.columns, **columns})


Getter: TypeAlias = Callable[[QueryEnvironment], object]
CompiledQuery: TypeAlias = Callable[[QueryEnvironment], list[Row]]


def compile_in_query(expr: Expr, lookup: Lookup) -> Getter:
    """Compile an expression over an environment, with its sub-queries."""

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
    """Compile a predicate; NULL is false, and a missing predicate true."""
    if expr is None:
        return lambda _env: True
    value = compile_in_query(expr, lookup)
    return lambda env: value(env) is True


def assignment(source: Type, target: Type) -> Callable[[object], object]:
    """Return the conversion of a value to the declared type.

    Numbers are converted, texts are truncated. If the source type is ANY, an integer is accepted as a time,
    because the value does not show the difference.
    """
    return (
        _checked_time(target)
        if source.kind is Kind.ANY and target.kind in _TIMES
        else converter(source, target)
    )


def _checked_time(type_: Type) -> Callable[[object], object]:
    def check(value: object) -> object:
        if value is not None and type(value) is not int:
            raise SlicemillError(f"{value!r} is no {type_}: times are integers, of microseconds or days")
        return value

    return check


def columns_of(alias: str, schema: Schema, row: Row) -> dict[str, object]:
    """Return a row's columns by their names in expressions."""
    return {f"{alias}.{name}": value for name, value in zip(schema.names, row, strict=True)}


def compile_query(query: RelationQuery, lookup: Lookup) -> CompiledQuery:
    """Compile a query to a function from its environment to its rows."""
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
        for key, descending in reversed(order):  # sorting is stable, so the first key is sorted last
            inside.sort(key=key, reverse=descending)
        out = [tuple(item(row) for item in items) for row in inside]
        if query.distinct:
            out = _distinct(out)
        return out if query.limit is None else out[: query.limit]

    return rows


def _compile_inputs(
    inputs: Sequence[RelationInput], lookup: Lookup
) -> Callable[[QueryEnvironment], Iterator[QueryEnvironment]]:
    """Return the product of the inputs as environments.

    Without inputs there is one environment.
    """
    readers = [_compile_input(entry, lookup) for entry in inputs]

    def joined(env: QueryEnvironment) -> Iterator[QueryEnvironment]:
        for rows in product(*(reader(env) for reader in readers)):
            yield env.around({name: value for row in rows for name, value in row.items()})

    def joined_in_turn(env: QueryEnvironment) -> Iterator[QueryEnvironment]:
        """Call table functions once for each combination of the preceding rows."""
        found = [env]
        for entry, reader in zip(inputs, readers, strict=True):
            fixed = reader(env) if entry.arguments is None else None
            found = [
                one.around(row) for one in found for row in (fixed if fixed is not None else reader(one))
            ]
        return iter(found)

    return joined if all(entry.arguments is None for entry in inputs) else joined_in_turn


def _compile_input(
    entry: RelationInput, lookup: Lookup
) -> Callable[[QueryEnvironment], list[dict[str, object]]]:
    """Return the rows of one input.

    A sub-query can read the columns outside the whole query, but not those of the other inputs.
    """
    if entry.query is not None and entry.arguments is not None:
        call, given = compile_table_call(entry.query, lookup), entry.arguments
        values = [(name, compile_in_query(value, lookup)) for name, value in given]

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
    """Compile a table function, which reads only stored tables and its arguments."""
    rows_of = compile_query(query, lookup)
    return lambda stored, values: rows_of(QueryEnvironment(stored, arguments=values))


def _compile_groups(
    query: RelationQuery, lookup: Lookup
) -> Callable[[QueryEnvironment, list[QueryEnvironment]], list[QueryEnvironment]]:
    """Compile grouping: from selected rows to an environment per output row."""
    keys = [compile_in_query(item.expr, lookup) for item in query.group_by]
    calls = [_compile_call(call, lookup) for call in query.aggregates]
    columns = [column for call in query.aggregates for column in call.columns]
    names = [*(item.name for item in query.group_by), *(column.name for column in columns)]
    # Aggregates compute with values only; DECIMALs, for example, get their declared scale here.
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
        for row in _grouped(calls, group_of if keys else None, [(row,) for row in inside]):
            named = {n: c(value) for n, c, value in zip(names, convert, row, strict=True)}
            out.append(visible.around(named | {alias: named[name] for alias, name in aliases.items()}))
        return out

    return groups


def _grouped(
    calls: Sequence[aggregate.RowCall], group_of: Callable[[Row], Row] | None, rows: list[Row]
) -> list[Row]:
    """Return group keys with aggregate values.

    These are the values that tuples return, then TERMINATE of each group. Without GROUP BY there is one
    group, even without rows.
    """
    if not calls:
        assert group_of is not None, "a grouped query has keys or calls"
        return _distinct([aggregate.shown(group_of(row)) for row in rows])
    definitions = [call.definition for call in calls]
    bases = [aggregate.base_of(definition) for definition in definitions]
    groups: dict[Row, tuple[Row, list[aggregate.BaseAccumulator]]] = {}
    steppers: dict[Row, list[aggregate.Stepper]] = {}

    def begin(key: Row, values: Row) -> None:
        groups[key] = aggregate.shown(values), [base() for base in bases]
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
    found: dict[Row, Row] = {}
    for row in rows:
        found.setdefault(aggregate.comparable(row), row)
    return list(found.values())


def _compile_call(call: BoundCall, lookup: Lookup) -> aggregate.RowCall:
    getters = [compile_in_query(argument, lookup) for argument in call.arguments]
    return aggregate.RowCall(
        lookup(call.name, call.distinct),
        lambda row: tuple(getter(cast(QueryEnvironment, row[0])) for getter in getters),
    )


def _single_value(rows: Sequence[Row]) -> object:
    if len(rows) > 1:
        raise SlicemillError(
            f"a query used as a value gave {len(rows)} rows; aggregate them, or add ORDER BY … LIMIT 1"
        )
    return rows[0][0] if rows else None


def _sort_key(getter: Getter) -> Callable[[QueryEnvironment], Any]:
    """Return a sort key.

    NULL is the smallest value and NaN the greatest.
    """

    def key(row: QueryEnvironment) -> tuple[int, object]:
        value = getter(row)
        if value is None:
            return (0, 0)
        return (2, 0) if value != value else (1, value)

    return key
