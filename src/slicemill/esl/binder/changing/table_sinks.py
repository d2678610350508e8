"""Bind `sink = 'table:name'`: write continuous results into a stored table."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.problems import Problems, Unknowable
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.syntax.source import TextSpan
from slicemill.esl.types.catalog import QueryOptions, Table
from slicemill.esl.types.query import Continuous
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import assignable


def check_table_sink(
    query: Continuous | RelationQuery, options: Sequence[nodes.Option], context: Context
) -> None:
    """Raise if the sink is a table that cannot take the results."""
    sink = next((option for option in options if option.this.name.lower() == "sink"), None)
    value = child(sink, "value") if sink is not None else None
    if not isinstance(value, exp.Literal):
        return
    name, place = QueryOptions(sink=value.name).table, span_of(value)
    if name is None:
        return
    if isinstance(query, RelationQuery):
        raise Mistake(
            "an ad hoc query has no results that go on coming", place, f"write INSERT INTO {name} SELECT …"
        )
    table = _table(name, place, context)
    problems = Problems()
    for column in query.schema.own:
        with problems.noting():
            into = table.schema.find(column.name)
            if into is None:
                known = did_you_mean(column.name, table.schema.names)
                raise Mistake(
                    f"table {table.name} has no column {column.name}",
                    place,
                    known or f"write SELECT … AS {table.schema.names[0]}: columns go by their names",
                )
            if not assignable(into.type, column.type):
                raise Mistake(
                    f"{column.name} of table {table.name} is {into.type}, and this is {column.type}",
                    place,
                    f"write CAST(… AS {into.type}) AS {column.name}",
                )
    for required in dict.fromkeys((*table.key, *table.required)):
        with problems.noting():
            if query.schema.own.find(required) is None:
                raise Mistake(
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
        raise Unknowable
    if relation is not None:
        raise Mistake(
            f"{relation.name} has no rows of its own", place, "name a table that is declared with its columns"
        )
    others = f"results are written into {one_of(tables)}" if tables else "declare it: CREATE TABLE"
    raise Mistake(f"there is no table {name}", place, did_you_mean(name, tables) or others)


def _check_key(query: Continuous, table: Table, place: TextSpan) -> None:
    """Check that a table has the key of changing results.

    Changing results are written as updates by key.
    """
    if not query.schema.changelog:
        return
    if query.schema.key is None:
        raise Mistake(
            "these results change, and no columns tell their rows apart in a table",
            place,
            "select the columns of the groups, or the rank; or end the SELECT with EMIT FINAL",
        )
    if {name.lower() for name in query.schema.key} != {name.lower() for name in table.key}:
        key = ", ".join(query.schema.key)
        raise Mistake(
            f"these results change, and their rows are told apart by ({key})",
            place,
            f"declare table {table.name} with PRIMARY KEY ({key})",
        )
