"""Relations of a running engine that ad hoc queries read by name."""

from __future__ import annotations

from slicemill.adhoc.errors import UnknownName
from slicemill.adhoc.query import InMemoryRelation, LogRelation, QueryableRelation
from slicemill.catalog.catalog import Catalog, QueryDefinition, Stream, Table, View
from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.errors import did_you_mean
from slicemill.lifecycle.catalog_journal import last_hidden_epoch
from slicemill.lifecycle.relations import Tables
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.statement_executor import StatementExecutor
from slicemill.types import OP


def queryable_relation(
    running: RunningCatalog, tables: Tables, statements: StatementExecutor, name: str
) -> QueryableRelation:
    """Return the relation whose name an ad hoc query gives in FROM.

    A table or view has its current rows, a stream or query its retained rows. A changelog has the current
    rows of its table.
    """
    relation = running.catalog.relation(name)
    if isinstance(relation, (Table, View)):
        held = relation.name
        return InMemoryRelation(to_arrow(relation.schema), lambda: tables.to_arrow(held))
    known = running.catalog.queries.get(name.lower()) or relation
    log = running.home.logs.get(known.name) if known is not None else None
    if isinstance(relation, Stream) and relation.name not in running.home.logs:
        empty = as_results(with_system_columns(to_arrow(relation.schema)).empty_table())
        # A stream that no query reads stores no rows.
        return InMemoryRelation(empty.schema, lambda: empty)
    if known is None or log is None:
        raise unknown_name(running.catalog, name)
    # Results of earlier versions of the definition are hidden.
    kind = "query" if isinstance(known, QueryDefinition) else "stream"
    versions = [] if isinstance(known, Stream) else statements.versions(kind, log.name)
    if not log.schema_shown(known.schema).changelog:
        return LogRelation(log, last_hidden_epoch(versions, log.hold))
    changing = known.schema
    shape = as_results(with_system_columns(log.columns_shown).empty_table()).drop_columns([OP])
    return InMemoryRelation(shape.schema, lambda: running.tables.changelogs.now(log, changing))


def unknown_name(catalog: Catalog, name: str) -> UnknownName:
    """Return the error for an unknown relation name, with a hint at similar names."""
    known = [one.name for one in (*catalog.queries.values(), *catalog.relations.values())]
    hint = did_you_mean(name, known) or "SHOW QUERIES and SHOW STREAMS list what is there"
    return UnknownName(f"there is no stream, query, table or view {name}", hint)
