"""Service: all operations of clients on the engine, independent of the protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from slicemill.adhoc.query import QueryableRelation
from slicemill.adhoc.relations import queryable_relation, unknown_name
from slicemill.api.mill import Mill
from slicemill.api.status import problems
from slicemill.catalog.catalog import Statement, View
from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.connectors.webhook import post
from slicemill.errors import SlicemillError
from slicemill.lifecycle.catalog_journal import Entry, in_force, redact_entry, version_at
from slicemill.lifecycle.query import Query
from slicemill.operators.graph import QueryGraph
from slicemill.runtime.state_view import with_measures
from slicemill.secrets import redact
from slicemill.server.adhoc.pool import QueryProcessPool, shared_pool
from slicemill.server.audit import AuditLog
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
        # Functions that return further problems, for example statements that could not be declared yet.
        self.other_problems: list[Callable[[], list[str]]] = []
        self._changing = threading.Lock()

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
            return sum(self.mill.statements.change_rows(source, by))

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
            raise NotFound(
                f"{relation.name} is not a continuous query; read it with SELECT * FROM {relation.name}"
            )
        if handle is None:
            raise NotFound(str(unknown_name(self.mill.catalog, name)))
        return handle

    def graph(self, name: str | None = None) -> QueryGraph:
        """Return the query graph of all queries or of one query, with measured metrics."""
        graph = self.mill.running.plan.graph
        if name is not None:
            graph = graph.only(graph.ancestors(self.query(name).name))
        return with_measures(graph, self.mill.home)

    def explain(self, name: str | None = None, form: str = "text") -> str:
        """Return the execution plan of a query, or of all queries, as in `Mill.explain`."""
        return self.mill.explain(None if name is None else self.query(name).name, form)

    def statements(self) -> list[Entry]:
        """Return the statements in force, with user and time, without passwords."""
        return [redact_entry(entry) for entry in in_force(self.mill.home.statements).values()]

    def relation(self, name: str) -> QueryableRelation:
        """Return the relation that an ad hoc query reads under a name."""
        mill = self.mill
        return queryable_relation(mill.running, mill.tables, mill.statements, name)

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
        """Return results of a query from epoch (commit) `since` on, in whole epochs.

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

    def _read(self, log: Log, epochs: Sequence[Epoch]) -> pa.Table:
        columns = log.columns_at(epochs[0].number) if epochs else log.columns
        empty = with_system_columns(columns).empty_table()
        return as_results(pa.concat_tables([empty, *(log.read(epoch) for epoch in epochs)]))
