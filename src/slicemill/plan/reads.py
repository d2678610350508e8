"""Relations that queries read in FROM, views and aggregate bodies."""

from __future__ import annotations

from slicemill.esl.types.catalog import Catalog, QueryDefinition, QueryOptions, Table, View
from slicemill.esl.types.relation import RelationQuery
from slicemill.operators.graph import QueryGraph
from slicemill.operators.streams.spec import Scan
from slicemill.plan.content import ContentWriter


def tables_of(graph: QueryGraph, catalog: Catalog) -> list[str]:
    """Return the declared names of the tables that a query graph reads."""
    if not any(isinstance(relation, Table) for relation in catalog.relations.values()):
        return []
    scanned = [node.operator.relation for node in graph if isinstance(node.operator, Scan)]
    found = relations_read(catalog, [node.operator for node in graph], *scanned)
    return sorted(name for name in found if isinstance(catalog.relation(name), Table))


def views_to_answer(catalog: Catalog) -> list[View]:
    """Return the views over streams. Their logs store their windows' rows."""
    return [
        relation
        for relation in catalog.relations.values()
        if isinstance(relation, View) and not isinstance(relation.query, RelationQuery)
    ]


def as_query(view: View) -> QueryDefinition:
    """Return a view as a query that emits its window's rows."""
    return QueryDefinition(view.name, view.query, QueryOptions(), "")


def relations_named(catalog: Catalog, what: object) -> set[str]:
    """Return the relations in FROM of some content and of called aggregates.

    Function calls are bound as their bodies, so the content includes what functions read. Relations behind a
    view are not included.
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
    """Return all relations that content or named relations read, views included."""
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
