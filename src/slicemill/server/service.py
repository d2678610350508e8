"""Service: all operations of clients on a mill, independent of the protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.api.status import problems
from slicemill.catalog.catalog import QueryDefinition, Statement, Stream, Table, View
from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.columns.rows import plain_table
from slicemill.connectors.webhook import post
from slicemill.errors import SlicemillError
from slicemill.explain.diagrams import explain_dot, explain_mermaid
from slicemill.explain.json import explain_json
from slicemill.explain.placements import place_tasks
from slicemill.explain.svg import explain_svg
from slicemill.explain.text import explain_text
from slicemill.lifecycle.catalog_journal import Entry, in_force, last_hidden_epoch, redact_entry, version_at
from slicemill.lifecycle.query import Query
from slicemill.operators.graph import QueryGraph
from slicemill.runtime.state_view import placements_in, with_measures
from slicemill.secrets import redact
from slicemill.server.adhoc.ask import InMemoryRelation, LogRelation, QueryableRelation
from slicemill.server.adhoc.pool import QueryProcessPool, shared_pool
from slicemill.server.audit import AuditLog
from slicemill.server.listings import no_such_name
from slicemill.server.permissions import ClientPermissions
from slicemill.sql.errors import SourceText
from slicemill.storage.log import Epoch, Log
from slicemill.types import OP

_STATEMENTS = 64


class NotFound(SlicemillError):
    """The requested object does not exist."""


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Page of results of a query, all of one version of the query.

    `next_epoch` starts the next page. With a `gap`, the first requested epochs are no longer retained.
    """

    table: pa.Table
    next_epoch: int
    gap: bool
    version: int = 1


class RelationShape(NamedTuple):
    """Relation that ad hoc queries can name, with its columns as a table without rows."""

    name: str
    rows: pa.Table
    is_view: bool


class MillService:
    """Operations of all client interfaces, without permission checks. Thread-safe.

    `user_session` checks permissions. `allowed` restricts the files, hosts and code that statements over the
    network may use; None allows everything.
    """

    def __init__(
        self,
        mill: Mill,
        allowed: ClientPermissions | None = None,
        audit: AuditLog | None = None,
        adhoc_queries: QueryProcessPool | None = None,
    ) -> None:
        self.mill = mill
        self.adhoc_queries = adhoc_queries or shared_pool()
        # Statements may take long, so they run in their own threads and do not delay other requests.
        self.threads = ThreadPoolExecutor(_STATEMENTS, "statement")
        self.allowed = allowed
        mill.alerts.send = self._send_alert
        self.audit = audit or AuditLog()
        # Problems in addition to those of the mill, for instance statements that wait to be declared.
        self.other_problems: list[Callable[[], list[str]]] = []
        self._changing = threading.Lock()
        self._changelogs = mill.changelogs

    def _send_alert(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        """Send an alert if its host resolves to an address that is allowed now."""
        allowed = self.allowed
        if allowed is None:
            post(url, body, headers)
        else:
            post(url, body, headers, check=partial(allowed.check_address, url))

    def declare(self, source: SourceText, by: str | None) -> list[Statement]:
        """Run declarations, all or none, one call at a time."""
        with self._changing:
            return self.mill.execute(source, by)

    def change_rows(self, source: SourceText, by: str | None) -> int:
        """Run one INSERT, UPDATE, DELETE or TRUNCATE. Return the number of affected rows."""
        with self._changing:
            return sum(self.mill.change_rows(source, by))

    def problems(self) -> list[str]:
        """Return the operations that fail and are retried, and the failed queries."""
        self.audit.write_waiting()
        found = [*problems(self.mill), *(one for others in self.other_problems for one in others())]
        if self.audit.problem is not None:
            found.append(self.audit.problem)
        return [redact(one) for one in found]

    def query(self, name: str) -> Query:
        """Return the handle of a continuous query."""
        known = self.mill.catalog.queries.get(name.lower())
        handle = self.mill.queries.get(known.name) if known is not None else None
        if handle is None and (relation := self.mill.catalog.relation(name)) is not None:
            raise NotFound(f"{relation.name} is no query; ask it: SELECT * FROM {relation.name}")
        if handle is None:
            raise NotFound(str(no_such_name(self.mill, name)))
        return handle

    def graph(self, name: str | None = None) -> QueryGraph:
        """Return the query graph of all queries or of one query, with measured metrics."""
        graph = self.mill.graph
        if name is not None:
            graph = graph.only(graph.ancestors(self.query(name).name))
        return with_measures(graph, self.mill.home)

    def explain(self, name: str | None = None) -> str:
        """Return the execution plan of a query, or of all queries, as text."""
        graph = self.graph(name)
        tasks = place_tasks(graph, self.mill.subtasks, placements_in(self.mill.home))
        return explain_text(graph, tasks=tasks)

    def explain_json(self, name: str | None = None) -> str:
        """Return the execution plan as JSON: nodes, arcs and tasks."""
        graph = self.graph(name)
        tasks = place_tasks(graph, self.mill.subtasks, placements_in(self.mill.home))
        return explain_json(graph, None, tasks)

    def explain_svg(self, name: str | None = None) -> str:
        """Return the execution plan as an SVG drawing."""
        return explain_svg(self.graph(name))

    def explain_mermaid(self, name: str | None = None) -> str:
        """Return the execution plan as a Mermaid flowchart."""
        return explain_mermaid(self.graph(name))

    def explain_dot(self, name: str | None = None) -> str:
        """Return the execution plan in Graphviz's DOT language."""
        return explain_dot(self.graph(name))

    def statements(self) -> list[Entry]:
        """Return the statements in force, with user and time, without passwords."""
        return [redact_entry(entry) for entry in in_force(self.mill.home.statements).values()]

    def relation(self, name: str) -> QueryableRelation:
        """Return the relation that an ad hoc query reads under a name.

        A table or view has its current rows, a stream or query its retained rows. A changelog has the
        current rows of its table.
        """
        relation = self.mill.catalog.relation(name)
        if isinstance(relation, (Table, View)):
            held, schema = relation.name, relation.schema
            if isinstance(relation, Table):
                return InMemoryRelation(to_arrow(schema), lambda: self.mill.rows_of_table(held))
            return InMemoryRelation(to_arrow(schema), lambda: plain_table(self.mill.held(held), schema))
        if isinstance(relation, Stream) and relation.name not in self.mill.home.logs:
            empty = as_results(with_system_columns(to_arrow(relation.schema)).empty_table())
            return InMemoryRelation(empty.schema, lambda: empty)  # streams without readers store no rows
        log = self._log(name)
        known = self.mill.catalog.queries.get(name.lower()) or relation
        # Hide results of earlier versions of the definition.
        kind = "query" if isinstance(known, QueryDefinition) else "stream"
        versions = [] if isinstance(known, Stream) else self.mill.versions(kind, log.name)
        if known is None or not log.schema_shown(known.schema).changelog:
            return LogRelation(log, last_hidden_epoch(versions, log.hold))
        changing = known.schema
        shape = as_results(with_system_columns(log.columns_shown).empty_table()).drop_columns([OP])
        return InMemoryRelation(shape.schema, lambda: self._changelogs.now(log, changing))

    def relations(self) -> Iterator[RelationShape]:
        """Yield all relations that an ad hoc query can name."""
        catalog = self.mill.catalog
        for found in (*catalog.relations.values(), *catalog.queries.values()):
            log = self.mill.home.logs.get(found.name)
            schema = found.schema if log is None else log.schema_shown(found.schema)
            columns, timed = to_arrow(schema), log is not None
            is_view = isinstance(found, View)
            rows = columns.empty_table()
            if timed and not is_view:
                rows = as_results(with_system_columns(columns).empty_table())
            if schema.changelog:  # an ad hoc query reads the current rows of a changelog
                rows = rows.drop_columns([OP])
            yield RelationShape(found.name, rows, is_view)

    def results(self, name: str, since: int = 0, most_rows: int = 10_000) -> ResultPage:
        """Return results of a query from epoch `since` on, in whole epochs.

        A page ends when it has `most_rows` rows, or where the version of the query changes.
        """
        query = self.query(name)
        log, versions = query.log, query.versions()
        chosen: list[Epoch] = []
        rows, version = 0, query.version
        for epoch in log.epochs(after=since - 1):
            of = version_at(versions, epoch.number)
            if rows >= most_rows or (chosen and of != version):
                break
            version = of
            chosen.append(epoch)
            rows += epoch.rows
        next_epoch = chosen[-1].number + 1 if chosen else max(since, log.head + 1)
        return ResultPage(self._read(log, chosen), next_epoch, log.has_freed_after(since - 1), version)

    def _log(self, name: str) -> Log:
        found = self.mill.catalog.queries.get(name.lower()) or self.mill.catalog.relation(name)
        log = self.mill.home.logs.get(found.name) if found is not None else None
        if log is None:
            raise no_such_name(self.mill, name)
        return log

    def _read(self, log: Log, epochs: Sequence[Epoch]) -> pa.Table:
        columns = log.columns_at(epochs[0].number) if epochs else log.columns
        empty = with_system_columns(columns).empty_table()
        return as_results(pa.concat_tables([empty, *(log.read(epoch) for epoch in epochs)]))
