"""Finite relations that something reads: by name in FROM, behind views, in bodies of aggregates it calls."""

from __future__ import annotations

from slicemill.esl.types.catalog import Catalog, QueryDefinition, QueryOptions, Table, View
from slicemill.esl.types.relation import RelationQuery
from slicemill.operators.graph import QueryGraph
from slicemill.operators.streams.spec import Scan
from slicemill.plan.content import ContentWriter


def tables_of(graph: QueryGraph, catalog: Catalog) -> list[str]:
    """The tables that a query graph reads, by their declared names."""
    if not any(isinstance(relation, Table) for relation in catalog.relations.values()):
        return []
    scanned = [node.operator.relation for node in graph if isinstance(node.operator, Scan)]
    found = relations_read(catalog, [node.operator for node in graph], *scanned)
    return sorted(name for name in found if isinstance(catalog.relation(name), Table))


def views_to_answer(catalog: Catalog) -> list[View]:
    """The views over streams, which may be asked at any time: logs of their names keep what they hold."""
    return [
        relation
        for relation in catalog.relations.values()
        if isinstance(relation, View) and not isinstance(relation.query, RelationQuery)
    ]


def as_query(view: View) -> QueryDefinition:
    """The query whose results a view's window holds."""
    return QueryDefinition(view.name, view.query, QueryOptions(), "")


def relations_named(catalog: Catalog, what: object) -> set[str]:
    """Return the names in FROM of some content, and of the bodies of all aggregates that it calls.

    A call of a function is bound as its body, so what functions read is a part of the content. What is
    behind a view is left out.
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
    """Return all relations that some content, or relations of these names, are made of."""
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
