"""Table sink: write the results of queries into tables exactly once.

One journal record has the new version of the table and the number of the last epoch (commit) of results that
the version contains (`written` in `lives`). After a crash the next process continues with the next epoch:

    results of q      epochs 7 8 9 │ 10 11
    rows of t         with 7 8 9   │             "tables": {"t": …}, "lives": {"q": {"written": 9}}

Each write makes a new version of the table, so results are written in batches of one second.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from slicemill.aggregates.udf.interpreter import assignment
from slicemill.catalog.catalog import INTO, TABLE_SINK, DerivedStream, QueryDefinition, QueryOptions, Table
from slicemill.columns.arrow_schema import from_arrow
from slicemill.columns.changelog import adds, ops_of
from slicemill.columns.rows import plain_rows
from slicemill.errors import SlicemillError
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.storage.changes import Change
from slicemill.storage.log import Epoch, Log
from slicemill.time import SECOND_US
from slicemill.types import OP, Row, Schema

_LOGGER = logging.getLogger("slicemill")
_EVERY_US = SECOND_US
_MOST_ROWS = 20_000  # maximum number of rows in one version of a table
WRITTEN = "written"


class TableSinkWriter:
    """Writer of query results into tables, for queries with the sink `table:<name>`."""

    def __init__(self, running: RunningCatalog) -> None:
        self._running = running
        self._changing = running.changing
        self._looked_us = 0
        self._errors: dict[str, str] = {}
        running.settle = self.settle

    def look(self) -> None:
        """Write new query results into their tables, at most once per second.

        Do nothing if another thread is changing declarations.
        """
        now_us = self._running.clock()
        if 0 <= now_us - self._looked_us < _EVERY_US or not self._changing.acquire(blocking=False):
            return
        try:
            self._looked_us = now_us
            writers = list(self._writers())
            names = {query.name for query, _ in writers}
            self._errors = {name: error for name, error in self._errors.items() if name in names}
            for query, table in writers:
                self._write_next(query, table)
        finally:
            self._changing.release()

    def write_all(self) -> None:
        """Write all pending results into their tables."""
        with self._changing:
            for query, table in self._writers():
                while self._write_next(query, table):
                    pass

    def settle(self, query: QueryDefinition) -> bool:
        """Write the last results of a dropped query into its table. Return False if they are rejected."""
        home = self._running.home
        table = self._running.catalog.relation(query.options.table or "")
        if not self._running.opened or query.name not in home.logs or not isinstance(table, Table):
            return True
        with self._changing:
            if "paused" in home.lives.get(query.name, {}):
                home.commit(Change(lives={query.name: {"paused": None}}))
            while self._write_next(query, table):
                pass
            return self._errors.pop(query.name, None) is None

    def flush_dropped(self) -> None:
        """Write the last results of queries whose DROP was interrupted by a crash. Call after a start."""
        running = self._running
        for name in [one for one in running.home.logs if INTO in one]:
            owner, _, into = name.partition(INTO)
            declared = running.catalog.queries.get(owner.lower()) or running.catalog.relation(owner)
            # The name of the log ends with a number if the query writes the same table in several places.
            table = running.catalog.relation(into) or running.catalog.relation(into.rpartition(" ")[0])
            if name.lower() in running.catalog.queries or running.catalog.relation(name) is not None:
                continue
            if isinstance(declared, (QueryDefinition, DerivedStream)) and isinstance(table, Table):
                options = QueryOptions(sink=f"{TABLE_SINK}{table.name}")
                if self.settle(QueryDefinition(name, declared.query, options, "", writes_for=owner)):
                    running.forget([name])

    def cursors(self) -> list[dict[str, int]]:
        """Return, for each query, a map from its log to the last epoch that is written into its table.

        Retention keeps later epochs.
        """
        return [{query.name: self._written(query)} for query, _ in self._writers()]

    def errors(self) -> dict[str, str]:
        """Map each query whose table rejects its rows to the last error."""
        return dict(self._errors)

    def problems(self) -> list[str]:
        return [
            f"the table that {query} writes rejects its rows: {error}; the write is retried"
            for query, error in self._errors.items()
        ]

    def _writers(self) -> Iterator[tuple[QueryDefinition, Table]]:
        catalog = self._running.catalog
        if not self._running.opened:
            return
        for query in list(catalog.queries.values()):
            table = None if query.options.table is None else catalog.relation(query.options.table)
            if query.continuous and isinstance(table, Table) and query.name in self._running.home.logs:
                yield query, table

    def _written(self, query: QueryDefinition) -> int:
        return int(self._running.home.lives.get(query.name, {}).get(WRITTEN, -1))

    def _write_next(self, query: QueryDefinition, table: Table) -> bool:
        """Write the next batch of a query's results into its table.

        Return False if there are no new results, or if the table rejects them.
        """
        home = self._running.home
        log = home.logs[query.name]
        epochs, _ = log.take(self._written(query), _MOST_ROWS)
        if not epochs:
            self._errors.pop(query.name, None)
            return False
        try:
            staged = self._running.tables.stage_results(
                table, (change for epoch in epochs for change in _changes(log, epoch, table))
            )
        except SlicemillError as problem:
            if self._errors.get(query.name) != str(problem):
                _LOGGER.warning("table %s rejects the results of %s: %s", table.name, query.name, problem)
            self._errors[query.name] = str(problem)
            return False
        self._errors.pop(query.name, None)
        written = Change(lives={query.name: {WRITTEN: epochs[-1].number}})
        if staged.versions:
            self._running.commit_tables(written, staged)
        else:
            home.commit(written)
        return True


def _changes(log: Log, epoch: Epoch, table: Table) -> Iterator[tuple[bool, Row]]:
    """Convert the results of an epoch to pairs of an insert flag (False: delete) and a table row."""
    rows, known = log.read(epoch), from_arrow(log.columns_at(epoch.number))
    own = Schema(tuple(column for column in known if column.name != OP))
    comes = adds(ops_of(rows)).tolist() if log.changes else [True] * rows.num_rows
    given = [own.find(into.name) for into in table.schema]
    taken = [
        None if column is None else (own.index(column.name), assignment(column.type, into.type))
        for column, into in zip(given, table.schema, strict=True)
    ]
    for does, row in zip(comes, plain_rows(rows, own), strict=True):
        yield does, tuple(None if one is None else one[1](row[one[0]]) for one in taken)
