"""Query handle: results, subscriptions, metrics and life cycle of a continuous query."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.columns.changelog import table_of_now
from slicemill.columns.rows import timed_rows
from slicemill.lifecycle.catalog_journal import QueryVersion, last_hidden_epoch, version_at
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.plan.content import quote_name
from slicemill.runtime.state_view import StoredSlice
from slicemill.storage.log import Log
from slicemill.types import Schema, Timed

if TYPE_CHECKING:
    import pandas as pd

    from slicemill.lifecycle.backfill import BackfillProgress
    from slicemill.lifecycle.pause_and_retry import QueryStatus


class Query:
    """Handle of a continuous query; the `with` statement drops the query."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        log: Log,
        execute: Callable[[str], object],
        explain: Callable[[], str],
        complete_from: Callable[[], int | None],
        state: Callable[[], list[StoredSlice]],
        model_values: Callable[[], list[dict[str, Any]]],
        metrics: Callable[[], QueryMetrics],
        life: Callable[[], QueryStatus],
        versions: Callable[[], list[QueryVersion]],
        progress: Callable[[], BackfillProgress | None],
    ) -> None:
        self.name = name
        self.schema = schema
        self.log = log
        self.error: str | None = None
        self._subscribers: list[Callable[[pa.Table], None]] = []
        self._kept: pa.Table | None = None
        self._execute = execute
        self._explain = explain
        self._complete_from = complete_from
        self._state = state
        self._model_values = model_values
        self._metrics = metrics
        self._life = life
        self._versions = versions
        self._delivered = log.head  # the last epoch that subscribers have
        self._progress = progress

    def to_arrow(self) -> pa.Table:
        """Return all retained results in timestamp order.

        The first column is the timestamp, `_ts` (UTC). Results of replaced definitions are not included.
        While the query is paused, it has the definition that was in force at the pause. For a changelog, the
        rows are all changes, with their kind in `_op`.
        """
        return self._results(self.log.read_after(self._before())[1]) if self._kept is None else self._kept

    def _before(self) -> int:
        """Return the last epoch of hidden earlier definitions, or -1."""
        return last_hidden_epoch(self.versions(), self.log.hold)

    @property
    def _shown(self) -> Schema:
        return self.log.schema_shown(self.schema)

    @property
    def version(self) -> int:
        """Number of the current definition: 1, incremented by each replacement."""
        return max(1, len(self.versions()))

    def version_at(self, epoch: int) -> int:
        """Return the number of the definition that produced an epoch."""
        return version_at(self.versions(), epoch)

    def versions(self) -> list[QueryVersion]:
        """Return all definitions of the query, with user and time, oldest first."""
        return self._versions()

    def newest(self, count: int) -> list[Timed]:
        """Return the last `count` results, in the form of `rows`."""
        table = self._kept
        if table is None:
            epochs = 1
            while epochs < len(self.log) and self.log.rows_after(self.log.newest(epochs) - 1) < count:
                epochs *= 2
            first = max(self.log.newest(epochs if count else 0) - 1, self._before())
            table = self._results(self.log.read_after(first)[1])
        return timed_rows(table.slice(max(0, table.num_rows - count)), self._shown)

    def _results(self, tables: Sequence[pa.Table]) -> pa.Table:
        parts = [part for part in tables if part.num_rows]
        empty = with_system_columns(to_arrow(self._shown)).empty_table()
        return as_results(pa.concat_tables(parts) if parts else empty)

    def table(self) -> pa.Table:
        """Return the current rows of a changelog.

        The timestamp of a row is that of its last change. For an append-only query, return all results.
        """
        schema = self._shown
        return table_of_now(self.to_arrow(), schema) if schema.changelog else self.to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """Return the results of `to_arrow` as a pandas data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[Timed]:
        """Return all retained results as (timestamp in microseconds, values)."""
        return timed_rows(self.to_arrow(), self._shown)

    def subscribe(self, receive: Callable[[pa.Table], None]) -> None:
        """Call a function with every new batch of results, in order.

        The batch has the form of `to_arrow`. A function that raises is not called again; the query continues.
        """
        self._subscribers.append(receive)

    def stop(self) -> None:
        """Drop the query; its results stay readable through this handle."""
        self._execute(f"DROP QUERY {quote_name(self.name)}")

    def pause(self) -> None:
        """Emit no results until `resume`; no input is lost."""
        self._execute(f"PAUSE QUERY {quote_name(self.name)}")

    def resume(self) -> None:
        """Continue after a pause, with the input that has arrived since."""
        self._execute(f"RESUME QUERY {quote_name(self.name)}")

    def restart(self) -> None:
        """Restart a failed query.

        The query continues from its committed state if possible, otherwise from the current input.
        """
        self._execute(f"RESTART QUERY {quote_name(self.name)}")

    def replace(self, select: str) -> None:
        """Replace the definition by another `SELECT …`; compatible state is kept."""
        self._execute(f"CREATE OR REPLACE QUERY {quote_name(self.name)} AS {select}")

    def life(self) -> QueryStatus:
        """Return the state (running, paused, failed or retrying) and its reason."""
        return self._life()

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def explain(self) -> str:
        return self._explain()

    def metrics(self) -> QueryMetrics:
        """Return the metrics of the query; its `plain()` is JSON-compatible."""
        return self._metrics()

    def progress(self) -> BackfillProgress | None:
        """Return the progress of a backfill; None once it has caught up."""
        return self._progress()

    def complete_from(self) -> int | None:
        """Return the timestamp from which results are complete (S23).

        Complete results equal those of a query that has always existed. A new query ignores earlier rows,
        except rows that joins already store for other queries. Its results are complete once its windows
        contain no ignored rows. Return None if the time is unknown: for windows that count rows or never end.
        """
        return self._complete_from()

    def state(self) -> list[StoredSlice]:
        """Return the committed slices of state with rows for this query."""
        return self._state()

    def model_values(self) -> list[dict[str, Any]]:
        """Return the current values of the query's models with OVER.

        Each entry is JSON-compatible, for one call, partition and core. The values include all committed
        rows.
        """
        return self._model_values()

    def delivered(self) -> None:
        """Pass new epochs to the subscribers; called by the mill."""
        last, self._delivered = self._delivered, self.log.head
        for epoch in self.log.epochs(after=last) if self._subscribers else ():
            table = as_results(self.log.read(epoch))
            self._subscribers = [
                receive for receive in self._subscribers if _notify_subscriber(receive, table)
            ]

    def detach(self) -> None:
        """Copy the results into the handle, before the log is deleted."""
        self._kept = self.to_arrow()

    def attach(self) -> None:
        """Read results from the log again, because its deletion failed."""
        self._kept = None


def _notify_subscriber(receive: Callable[[pa.Table], None], table: pa.Table) -> bool:
    try:
        receive(table)
    except Exception:  # an error of a subscriber must not stop the query
        logging.getLogger("slicemill").exception("a subscriber failed and is not called again")
        return False
    return True
