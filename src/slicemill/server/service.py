"""The service: all that a person can ask of a mill, whichever way the words came in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slicemill.columns.changes import table_of_now
from slicemill.columns.rows import plain_table
from slicemill.engine.changing.statements import Entry, in_force
from slicemill.engine.live import problems
from slicemill.engine.mill import Mill
from slicemill.engine.query import Query
from slicemill.engine.state_view import placements_in, with_measures
from slicemill.errors import SlicemillError
from slicemill.esl import SourceText
from slicemill.esl.types.catalog import Statement, Table, View
from slicemill.explain.json import explain_json
from slicemill.explain.placements import placed_units
from slicemill.explain.svg import explain_svg
from slicemill.explain.text import explain_text
from slicemill.operators.graph import QueryGraph
from slicemill.server.audit import AuditLog
from slicemill.server.listings import unknown
from slicemill.server.permissions import Allowed
from slicemill.storage.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.storage.log import Epoch, Log


class NotThere(SlicemillError):
    """What is asked for does not exist."""


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Some results of a query; `next_epoch` is to be asked for next.

    With a `gap`, the first ones that were asked for are not retained any more.
    """

    table: pa.Table
    next_epoch: int
    gap: bool


class MillService:
    """The calls behind all ways in, without asking who calls (`user_session` does). For any thread.

    `allowed` says what statements from outside may name; without it, anything.
    """

    def __init__(self, mill: Mill, allowed: Allowed | None = None, audit: AuditLog | None = None) -> None:
        self.mill = mill
        self.allowed = allowed
        self.audit = audit or AuditLog()
        # Besides those of the mill: what waits to be declared, for instance.
        self.other_problems: list[Callable[[], list[str]]] = []
        self._changing = threading.Lock()

    def declare(self, source: SourceText, by: str | None) -> list[Statement]:
        """Run declarations, all or none; one text at a time."""
        with self._changing:
            return self.mill.execute(source, by)

    def problems(self) -> list[str]:
        """What does not work and is tried again, and queries that stopped; empty if all is well."""
        return [*problems(self.mill), *(one for others in self.other_problems for one in others())]

    def query(self, name: str) -> Query:
        """The handle of a continuous query."""
        known = self.mill.catalog.queries.get(name.lower())
        handle = self.mill.queries.get(known.name) if known is not None else None
        if handle is None:
            raise NotThere(str(unknown(self.mill, name)))
        return handle

    def graph(self, name: str | None = None) -> QueryGraph:
        """The part of the query graph that a query needs, or all of it, with what was measured."""
        graph = self.mill.graph
        if name is not None:
            graph = graph.only(graph.ancestors(self.query(name).name))
        return with_measures(graph, self.mill.home)

    def explain(self, name: str | None = None) -> str:
        """How a query runs, or how all of them do, as text."""
        graph = self.graph(name)
        units = placed_units(graph, self.mill.cells, placements_in(self.mill.home))
        return explain_text(graph, units=units)

    def explain_json(self, name: str | None = None) -> str:
        """The same for programs: nodes, arcs and units."""
        graph = self.graph(name)
        units = placed_units(graph, self.mill.cells, placements_in(self.mill.home))
        return explain_json(graph, None, units)

    def explain_svg(self, name: str | None = None) -> str:
        """The same as a drawing."""
        return explain_svg(self.graph(name))

    def statements(self) -> list[Entry]:
        """The statements in force, with who and when."""
        return list(in_force(self.mill.home.statements).values())

    def rows_of(self, name: str) -> pa.Table:
        """The rows of a relation as they are now: of a stream or query, those that are retained.

        Of results that change, these are the rows that they come to.
        """
        relation = self.mill.catalog.relation(name)
        if isinstance(relation, (Table, View)):
            return plain_table(self.mill.held(relation.name), relation.schema)
        log = self._log(name)
        found = self._read(log, log.epochs())
        known = self.mill.catalog.queries.get(name.lower()) or relation
        if known is None or not known.schema.changelog:
            return found
        if log.freed >= 0:
            raise SlicemillError(
                f"changes of {name} that nobody reads any more are gone; ask a query over it: "
                f"CREATE QUERY {name}_now AS SELECT * FROM {name}"
            )
        return table_of_now(found, known.schema)

    def relations(self) -> Iterator[tuple[str, pa.Table]]:
        """All that a question can name, as tables without rows."""
        catalog = self.mill.catalog
        for found in (*catalog.relations.values(), *catalog.queries.values()):
            columns = to_arrow(found.schema)
            timed = found.name in self.mill.home.logs
            yield (
                found.name,
                as_results(with_system_columns(columns).empty_table()) if timed else columns.empty_table(),
            )

    def results(self, name: str, since: int = 0, most_rows: int = 10_000) -> ResultPage:
        """Results of a query from epoch `since` on; whole epochs, until there are `most_rows` of them."""
        log = self.query(name).log
        chosen: list[Epoch] = []
        rows = 0
        for epoch in log.epochs(after=since - 1):
            if rows >= most_rows:
                break
            chosen.append(epoch)
            rows += epoch.rows
        next_epoch = chosen[-1].number + 1 if chosen else max(since, log.head + 1)
        return ResultPage(self._read(log, chosen), next_epoch, gap=0 < since <= log.freed)

    def _log(self, name: str) -> Log:
        found = self.mill.catalog.queries.get(name.lower()) or self.mill.catalog.relation(name)
        log = self.mill.home.logs.get(found.name) if found is not None else None
        if log is None:
            raise unknown(self.mill, name)
        return log

    def _read(self, log: Log, epochs: Sequence[Epoch]) -> pa.Table:
        empty = with_system_columns(log.columns).empty_table()
        return as_results(pa.concat_tables([empty, *(log.read(epoch) for epoch in epochs)]))
