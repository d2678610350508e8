"""Current rows of tables and views, and of queries over tables only.

The rows in a view's window are stored in its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from slicemill.aggregates.udf.lookup import evaluate_relation
from slicemill.catalog.catalog import Table, View
from slicemill.catalog.queries import FrameUnit, RelationQuery, SelectQuery, Window
from slicemill.columns.rows import plain_rows, plain_table, timed_rows
from slicemill.errors import SlicemillError
from slicemill.lifecycle.refresh import TableRefresher
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.table_sink import TableSinkWriter
from slicemill.operators.step import relation_rows, view_content
from slicemill.plan.statement_equality import relations_read
from slicemill.runtime.driver_limit import CpuTimeLimit
from slicemill.storage.home import Home
from slicemill.storage.log import Log
from slicemill.time import BEGINNING, END
from slicemill.types import Row


class Tables:
    """Tables and views of the engine, with the components that refresh tables and write results into them."""

    def __init__(self, running: RunningCatalog) -> None:
        self._running = running
        self.writer = TableSinkWriter(running)
        self.refresher = TableRefresher(self.refresh, running)

    def rows(self, name: str) -> Sequence[Row]:
        """Return the current rows of a table, a view, a query over tables, or a query with a changelog.

        A table that is read from a source is read again. A view over a stream contains only rows that arrived
        after the view was declared. The window of the view ends at the newest row, or at the clock if the
        clock advances the watermark. For a continuous query with a changelog, the changelog is applied and
        the resulting rows are returned.
        """
        handle = self._running.queries.get(name.lower())
        if handle is not None and handle.schema.changelog:
            return plain_rows(handle.table(), handle.schema.own)
        catalog = self._running.catalog
        query, relation = catalog.queries.get(name.lower()), catalog.relation(name)
        if query is not None and isinstance(query.query, RelationQuery):
            with CpuTimeLimit(f"query {name}"):
                return self._answer(query.query)
        if query is not None:
            raise SlicemillError(f"{name} is a continuous query; its results are in mill.queries[{name!r}]")
        if isinstance(relation, View):
            with CpuTimeLimit(f"view {name}"):
                return self._rows_of(name)
        return self._rows_of(name)

    def to_arrow(self, name: str) -> pa.Table:
        """Return the current rows of a table or view as a pyarrow table."""
        relation = self._running.catalog.relation(name)
        if isinstance(relation, View):
            return plain_table(self.rows(name), relation.schema)
        return self._running.tables.columns_now(self._table(name))

    def set_rows(self, name: str, rows: Sequence[Row]) -> None:
        """Set the rows of a table from Python; these rows replace the rows of its source.

        Stream rows that arrive later are joined with the new rows. The table may be declared afterwards.
        """
        self._running.tables.give(name, rows)
        if isinstance(self._running.catalog.relation(name), Table):
            self.refresh(name)

    def refresh(self, name: str) -> None:
        """Read the source of a table again.

        Stream rows that arrive later are joined with the new rows.
        """
        with self._running.changing:
            if self._running.tables.refresh(self._table(name)):
                self._running.commit_tables()

    def problems(self) -> list[str]:
        """Return a line of text for each table that cannot be written or read."""
        return [*self.writer.problems(), *self.refresher.problems()]

    def _answer(self, query: RelationQuery) -> list[Row]:
        catalog = self._running.catalog
        read = [catalog.relation(one) for one in relations_read(catalog, query)]
        rows = {
            relation.name: self._rows_of(relation.name)
            for relation in read
            if isinstance(relation, Table)
            or (isinstance(relation, View) and not isinstance(relation.query, RelationQuery))
        }
        return evaluate_relation(query, catalog, lambda t: relation_rows(t, catalog, rows))

    def _rows_of(self, name: str) -> Sequence[Row]:
        running = self._running
        relation = running.catalog.relation(name)
        if isinstance(relation, View) and isinstance(relation.query, RelationQuery):
            return evaluate_relation(relation.query, running.catalog, self._rows_of)
        if isinstance(relation, View):
            return rows_in_window(relation, running)
        return running.tables.now(self._table(name))

    def _table(self, name: str) -> Table:
        table = self._running.catalog.relation(name)
        if not isinstance(table, Table):
            raise SlicemillError(f"there is no table {name}; declare it with CREATE TABLE")
        return table


def rows_in_window(view: View, running: RunningCatalog) -> list[Row]:
    """Return the rows in the window of a view, at its newest row or watermark, whichever is later."""
    log = running.home.logs.get(view.name)
    if log is None:
        return []
    found = [row for epoch in log.epochs() for row in timed_rows(log.read(epoch), view.schema)]
    return view_content(view, found, _now(log, running.dispatcher.watermark(log.name)))


def first_epochs_in_use(views: Iterable[View], home: Home, watermarks: Mapping[str, int]) -> dict[str, int]:
    """Map each view to the first epoch of its log that its window still needs."""
    freed = {}
    for view in views:
        log = home.logs.get(view.name)
        if log is not None:
            first = _first_epoch_in_use(_window(view), log, _now(log, watermarks[view.name]))
            if first > log.first:
                freed[view.name] = first
    return freed


def _first_epoch_in_use(window: Window, log: Log, now: int) -> int:
    assert window.extent is not None, "the binder asks for a window with a beginning"
    rows, first = 0, log.head + 1
    for epoch in reversed(log.epochs()):
        if window.frame is FrameUnit.ROWS:
            passed = rows >= window.extent
        else:
            passed = epoch.max_ts is not None and epoch.max_ts <= now - window.extent
        if passed:
            break
        rows, first = rows + epoch.rows, epoch.number
    return first


def _now(log: Log, watermark: int) -> int:
    newest = BEGINNING if log.max_ts is None else log.max_ts
    return max(newest, watermark) if watermark < END else newest


def _window(view: View) -> Window:
    assert isinstance(view.query, SelectQuery), "the binder asks for one window"
    window = view.query.inputs[0].window
    assert window is not None, "the binder asks for one"
    return window
