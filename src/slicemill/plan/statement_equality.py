"""Normal form of statements, which is equal for two SQL texts with the same meaning.

    SELECT A.v FROM s AS A, t WHERE A.k = t.k        SELECT s.v FROM s, t -- by key
                                                     WHERE s.k = t.k

Statements are bound first, which removes differences in blanks, comments and case. Aliases of inputs and
names of calls are replaced by their positions. The normal form has one part for each SQL clause, so that an
error message can name the clause that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.catalog import (
    Catalog,
    DerivedStream,
    QueryDefinition,
    QueryOptions,
    Statement,
    Stream,
    Table,
    View,
)
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import (
    AggregateCall,
    Continuous,
    QueryInput,
    RelationInput,
    RelationQuery,
    SelectQuery,
    UnionQuery,
    WindowCall,
)
from slicemill.operators.graph import QueryGraph
from slicemill.operators.specs import Scan
from slicemill.plan.content import ContentWriter
from slicemill.types import Column

Parts = dict[str, str]


def normal_form(statement: Statement) -> Parts:
    """Return the normal form of each clause of a statement.

    Options for scheduling and delivery are not included.
    """
    writer = _Writer()
    if isinstance(statement, QueryDefinition):
        parts = writer.query(statement.query)
        # The weight affects results only for queries with load shedding.
        weight = statement.options.weight if statement.load is not None else None
        parts["options"] = writer.written((statement.load, statement.utility, weight))
        return parts
    if isinstance(statement, (DerivedStream, View)):
        return writer.query(statement.query)
    if isinstance(statement, Stream):
        return {
            "columns": writer.written(statement.schema),
            "ORDER BY": writer.written((statement.kind, statement.time_column)),
            "SLACK": writer.written(statement.slack_us),
            "SKEW": writer.written(statement.skew_us),
            "source": writer.written(statement.source),
        }
    if isinstance(statement, Table):
        # The rows of a table and its source may change without changing the definition.
        return {
            "columns": writer.written(statement.schema),
            "key": writer.written((statement.key, statement.required)),
            "query": writer.written(statement.materialized and statement.materialized.name.lower()),
        }
    return {"definition": writer.written(statement)}


def diff_statements(before: Statement, after: Statement) -> list[str]:
    """Return the names of the clauses in which two statements differ."""
    if type(before) is not type(after):
        return ["kind"]
    was, now = normal_form(before), normal_form(after)
    return [name for name in {**was, **now} if was.get(name) != now.get(name)]


def aggregates_called(definition: AggregateDefinition) -> set[str]:
    """Return the aggregate functions that the body of a user-defined aggregate calls."""
    writer = ContentWriter()
    writer.written(definition)
    return writer.called


class _Writer(ContentWriter):
    """Serializer that writes positions in place of table aliases and names of calls."""

    def __init__(self) -> None:
        super().__init__()
        self._scopes: list[dict[str, str]] = []

    def written(self, what: Any) -> str:
        if isinstance(what, ColumnRef):
            return f"column {self._name(what.name)}: {super().written(what.type)}"
        if isinstance(what, Column) and self._scopes:
            return f"column {self._name(what.name)}: {super().written(what.type)}"
        if isinstance(what, (SelectQuery, UnionQuery, RelationQuery)):
            return super().written(self.query(what))
        if isinstance(what, (QueryInput, RelationInput)):
            return self._input(what)
        if isinstance(what, (AggregateCall, WindowCall)):
            return self._call(what)
        return super().written(what)

    def query(self, query: Continuous | RelationQuery) -> Parts:
        if isinstance(query, UnionQuery):
            branches = [self.query(branch) for branch in query.branches]
            names = dict.fromkeys(name for parts in branches for name in parts)
            return {name: super(_Writer, self).written([p.get(name) for p in branches]) for name in names}
        self._scopes.append(_own_names(query, len(self._scopes)))
        calls = [*query.aggregates, *(query.window_calls if isinstance(query, SelectQuery) else ())]
        parts = {
            "FROM": self.written(query.inputs),
            "WHERE": self.written(query.where),
            "GROUP BY": self.written([item.expr for item in query.group_by]),
            "HAVING": self.written(query.having),
            "SELECT": self.written([*((item.name, item.expr) for item in query.items), *calls]),
        }
        if isinstance(query, RelationQuery):
            parts["ORDER BY"] = self.written((query.distinct, query.order_by, query.limit))
        else:
            parts["VALID"] = self.written(query.coalesce)
            parts["SESSION"] = self.written(query.session)
            ranked = query.rank and (query.rank.by, query.rank.column.type, query.rank.limit)
            parts["QUALIFY"] = self.written((ranked, query.qualify))
            parts["ORDER BY"] = self.written((query.order, query.limit))
            parts["DISTINCT"] = self.written(query.distinct)
            parts["EMIT"] = self.written((query.emit, query.corrections))
        self._scopes.pop()
        return parts

    def _input(self, entry: QueryInput | RelationInput) -> str:
        name = None if entry.relation is None or entry.query is not None else entry.relation.lower()
        if isinstance(entry, RelationInput):
            return self.written((name, entry.query, entry.arguments, *entry.more))
        joined = (entry.left_on, entry.call, entry.kind, entry.on, entry.as_of, entry.closes)
        return self.written((name, entry.query, entry.window, entry.finite, *joined))

    def _call(self, call: AggregateCall | WindowCall) -> str:
        over = (call.partition_by, call.window) if isinstance(call, WindowCall) else ()
        types = [column.type for column in call.columns]
        return self.written((call.name.lower(), call.arguments, call.distinct, *over, types))

    def _name(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name


def _own_names(query: SelectQuery | RelationQuery, depth: int) -> dict[str, str]:
    """Map column names to the positions of their table, group expression or call in a query."""
    names: dict[str, str] = {}
    if len(query.inputs) > 1 or isinstance(query, RelationQuery):
        entries: Sequence[QueryInput | RelationInput] = query.inputs
        for index, entry in enumerate(entries):
            for column in entry.schema:
                names.setdefault(f"{entry.alias}.{column.name}", f"{depth}.{index}.{column.name}")
    for index, item in enumerate(query.group_by):
        names.setdefault(item.name, f"{depth}.group {index}")
    calls: Sequence[AggregateCall | WindowCall] = query.aggregates
    if isinstance(query, SelectQuery):
        calls = [*calls, *query.window_calls]
    for index, call in enumerate(calls):
        for number, column in enumerate(call.columns):
            names.setdefault(column.name, f"{depth}.call {index}.{number}")
    return names


# Relations that queries read in FROM, views and aggregate bodies


def tables_of(graph: QueryGraph, catalog: Catalog) -> list[str]:
    """Return the declared names of the tables that a query graph reads."""
    if not any(isinstance(relation, Table) for relation in catalog.relations.values()):
        return []
    scanned = [node.operator.relation for node in graph if isinstance(node.operator, Scan)]
    found = relations_read(catalog, [node.operator for node in graph], *scanned)
    return sorted(name for name in found if isinstance(catalog.relation(name), Table))


def views_to_answer(catalog: Catalog) -> list[View]:
    """Return the views over streams, which ad hoc queries may read.

    Their logs store the rows of a window.
    """
    return [
        relation
        for relation in catalog.relations.values()
        if isinstance(relation, View) and not isinstance(relation.query, RelationQuery)
    ]


def as_query(view: View) -> QueryDefinition:
    """Return a query that emits the rows in a view's window."""
    return QueryDefinition(view.name, view.query, QueryOptions(), "")


def relations_named(catalog: Catalog, what: object) -> set[str]:
    """Return the relations in the FROM clauses of a statement and of the aggregates it calls.

    Function calls are bound as their bodies, so the content includes the relations that functions read.
    Relations behind a view are not included.
    """
    writer = ContentWriter()
    writer.written(what)
    called: set[str] = set()
    while new_calls := writer.called - called:
        called |= new_calls
        for name in new_calls:
            writer.written([version for version in catalog.declared_versions(name) if version is not None])
    return {name for name in writer.relations if catalog.relation(name) is not None}


def relations_read(catalog: Catalog, what: object, *names: str) -> set[str]:
    """Return all relations that a statement or the relations in `names` read, including views."""
    writer = ContentWriter()
    writer.written(what)
    writer.relations.update(names)
    found: set[str] = set()
    called: set[str] = set()
    while True:
        new_names, new_calls = writer.relations - found, writer.called - called
        if not new_names and not new_calls:
            break
        found |= new_names
        called |= new_calls
        for name in new_names:
            relation = catalog.relation(name)
            if isinstance(relation, View) and isinstance(relation.query, RelationQuery):
                writer.written(relation.query)
        for name in new_calls:
            writer.written([version for version in catalog.declared_versions(name) if version is not None])
    known = (catalog.relation(name) for name in found)
    return {relation.name for relation in known if relation is not None}
