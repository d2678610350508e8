"""Query handle: results, subscriptions, metrics and life cycle of a continuous query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slicemill.catalog.catalog import QueryDefinition
from slicemill.columns.arrow_schema import as_results, to_arrow, with_system_columns
from slicemill.columns.changelog import table_of_now
from slicemill.columns.rows import timed_rows
from slicemill.extension import live_values, load
from slicemill.lifecycle.catalog_journal import QueryVersion, last_hidden_epoch, version_at
from slicemill.lifecycle.task_fields import complete_from_of
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.plan.content import quote_name
from slicemill.runtime.state_view import StoredSlice, explain_plan, slices_of
from slicemill.storage.log import Log
from slicemill.storage.segments import ExtentFreed
from slicemill.types import Schema, Timed

if TYPE_CHECKING:
    import pandas as pd

    from slicemill.lifecycle.backfill import Backfills
    from slicemill.lifecycle.pause_and_retry import QueryLifecycle, QueryStatus
    from slicemill.lifecycle.replace_report import ReplaceEffect
    from slicemill.lifecycle.running_catalog import RunningCatalog
    from slicemill.lifecycle.statement_executor import StatementExecutor
    from slicemill.runtime.run_metrics import RunMetrics

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class QueryContext:
    """Components of the engine that the handles of queries use."""

    running: RunningCatalog
    statements: StatementExecutor
    lifecycle: QueryLifecycle
    backfills: Backfills
    run_metrics: RunMetrics


@dataclass(frozen=True)
class LiveRows:
    """Result rows of one epoch (one commit). A follower continues with epoch `next`.

    If `gap` is True, retention has deleted rows that precede this epoch and that the follower has not read.
    """

    epoch: int
    next: int
    version: int
    table: pa.Table
    gap: bool = False

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows


class Query:
    """Handle of a continuous query; the `with` statement drops the query.

    `slicemill_client.QueryHandle` has the methods that are the same for a query on a server.
    """

    def __init__(self, query: QueryDefinition, context: QueryContext) -> None:
        self.name = query.name
        self.schema = query.schema
        self.log: Log = context.running.home.logs[query.name]
        self.error: str | None = None
        self._context = context
        self._metrics = context.run_metrics.begin(query)
        self._subscriptions: list[Subscription] = []
        self._kept: pa.Table | None = None

    def to_arrow(self) -> pa.Table:
        """Return all retained results in timestamp order.

        The first column is the timestamp, `_ts` (UTC). Results of replaced definitions are not included.
        While the query is paused, the results of the definition at the pause are returned. For a changelog,
        the rows are all changes, and `_op` has the kind of each change.
        """
        return self._results(self.log.read_after(self._before())[1]) if self._kept is None else self._kept

    def _before(self) -> int:
        """Return the last epoch with results of replaced definitions, which are not shown, or -1."""
        return last_hidden_epoch(self.versions(), self.log.hold)

    @property
    def _shown(self) -> Schema:
        return self.log.schema_shown(self.schema)

    @property
    def version(self) -> int:
        """Number of the current definition: 1 for the first, incremented by each replacement."""
        return max(1, len(self.versions()))

    def version_at(self, epoch: int) -> int:
        """Return the number of the query definition that produced the results of an epoch."""
        return version_at(self.versions(), epoch)

    def versions(self) -> list[QueryVersion]:
        """Return all definitions of the query, with user and time, oldest first."""
        return self._context.statements.versions("query", self.name)

    def newest(self, count: int) -> list[Timed]:
        """Return the last `count` results as (timestamp in microseconds, values)."""
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
        """Return the current rows of a query whose results are a changelog.

        Each row has the timestamp of its last change. For an append-only query, return all results.
        """
        schema = self._shown
        return table_of_now(self.to_arrow(), schema) if schema.changelog else self.to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """Return the results of `to_arrow` as a pandas data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def rows(self) -> list[dict[str, Any]]:
        """Return all retained results as dictionaries, with the timestamp in `_ts`."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def timed_rows(self) -> list[Timed]:
        """Return all retained results as (timestamp in microseconds, values)."""
        return timed_rows(self.to_arrow(), self._shown)

    def follow(
        self, since: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[LiveRows]:
        """Yield results as they are committed, until the query is dropped.

        Starts with epoch `since`. If `since` is None, starts with the next new results.
        """
        return self._follow(self.log.head if since is None else since - 1, stopped)

    def _follow(self, cursor: int, stopped: Callable[[], bool]) -> Iterator[LiveRows]:
        running = self._context.running
        changed = running.dispatcher.changed
        while not stopped() and running.queries.get(self.name) is self:
            for rows in self._live_after(cursor):
                cursor = rows.epoch
                yield rows
            with changed:
                if self.log.head <= cursor:
                    changed.wait(_LOOK_EVERY_S)

    def _live_after(self, cursor: int) -> Iterator[LiveRows]:
        """Yield the results of each retained epoch after epoch `cursor`.

        `gap` is True in the first result after rows that retention has deleted.
        """
        gap = self.log.has_freed_after(cursor)
        for epoch in self.log.epochs(after=cursor):
            try:
                table = as_results(self.log.read(epoch))
            except ExtentFreed:
                gap = True
                continue
            yield LiveRows(epoch.number, epoch.number + 1, self.version_at(epoch.number), table, gap)
            gap = False

    def subscribe(self, receive: Callable[[LiveRows], None], since: int | None = None) -> Subscription:
        """Call a function with each new epoch of results, in order.

        Starts with epoch `since`. If `since` is None, starts with the next new results. The thread that
        commits the results calls the function. If the function raises, it is not called again, and the query
        continues.
        """
        subscription = Subscription(self.name, receive, self.log.head if since is None else since - 1)
        self._subscriptions.append(subscription)
        if since is not None:
            subscription.deliver(self._live_after)
        return subscription

    def drop(self) -> None:
        """Drop the query; its results stay readable through this handle."""
        self._do("DROP")

    def pause(self) -> None:
        """Pause the query: emit no results until `resume`; no input is lost."""
        self._do("PAUSE")

    def resume(self) -> None:
        """Resume a paused query; it also processes the input that arrived during the pause."""
        self._do("RESUME")

    def restart(self) -> None:
        """Restart a failed query.

        The query continues from its committed state if possible, otherwise from the current input.
        """
        self._do("RESTART")

    def replace(self, select: str) -> None:
        """Replace the definition of the query by another `SELECT …`; compatible state is kept."""
        self._context.statements.execute(self._replacement(select))

    def explain_replace(self, select: str) -> list[ReplaceEffect]:
        """Return the effects that `replace` would have on the state and the results of queries."""
        return self._context.statements.explain_replace(self._replacement(select))

    def _replacement(self, select: str) -> str:
        return f"CREATE OR REPLACE QUERY {quote_name(self.name)} AS {select}"

    def _do(self, action: str) -> None:
        self._context.statements.execute(f"{action} QUERY {quote_name(self.name)}")

    def status(self) -> QueryStatus:
        """Return the lifecycle state of the query, its last error and the time of its next retry."""
        return self._context.lifecycle.of(self.name)

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def explain(self) -> str:
        """Return the execution plan as text, with measured statistics, backfill and subtasks."""
        running = self._context.running
        text = explain_plan(running.plan.graph, running.home, running.changes.subtasks, self.name)
        described = self._context.backfills.describe(self.name)
        return text + described + self._context.run_metrics.describe_subtasks(self.name)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the query as JSON-compatible values."""
        return self.measured().plain()

    def measured(self) -> QueryMetrics:
        """Return the metrics of the query as an object that the engine updates."""
        return self._context.run_metrics.now(self._metrics, self._context.running.plan.graph)

    def lag_rows(self) -> int:
        """Return the number of unread input rows of the query's task."""
        task = self._context.running.dispatcher.running.writers.get(self.name)
        return task.rows_left if task is not None else 0

    def progress(self) -> dict[str, Any] | None:
        """Return the progress of the query's backfill, or None if the query is not backfilling."""
        progress = self._context.backfills.progress_of(self.name)
        return None if progress is None else progress.plain()

    def complete_from(self) -> int | None:
        """Return the timestamp from which results are complete (S23).

        Complete results equal those of a query that has always existed. A new query ignores earlier rows,
        except rows that joins already store for other queries. Its results are complete once its windows
        contain no ignored rows. Return None if the time is unknown, for example for a window that counts
        rows or never ends.
        """
        running = self._context.running
        return complete_from_of(self.name, running.plan.graph, running.dispatcher.tasks.values())

    def state_slices(self) -> list[StoredSlice]:
        """Return the committed state slices (stored join rows of an age range) with rows for this query."""
        running = self._context.running
        running.dispatcher.checkpoint_all()
        return [held for held in slices_of(running.home) if self.name in held.wanted]

    def model_values(self) -> list[dict[str, Any]]:
        """Return the current values of the models that the query calls with an OVER clause.

        Each entry is JSON-compatible, for one call, partition and core statistic (aggregate from which the
        value of a model is computed). The values include all committed rows.
        """
        running = self._context.running
        running.dispatcher.checkpoint_all()
        return [value for live in live_values() for value in load(live.read)(running.home, self.name)]

    def delivered(self) -> None:
        """Pass the results of new epochs to the subscribers. The engine calls this after each commit."""
        for subscription in self._subscriptions:
            subscription.deliver(self._live_after)
        self._subscriptions = [one for one in self._subscriptions if not one.stopped]

    def detach(self) -> None:
        """Copy the results into the handle, before the log of the query is deleted."""
        self._kept = self.to_arrow()

    def attach(self) -> None:
        """Read results from the log again, because dropping the query failed and its log still exists."""
        self._kept = None


class Subscription:
    """Subscription: calls a function with the results of each new epoch, until `stop` is called.

    `error` is the exception that the function raised, or None.
    """

    def __init__(self, query: str, receive: Callable[[LiveRows], None], cursor: int) -> None:
        self.error: Exception | None = None
        self.stopped = False
        self._query = query
        self._receive = receive
        self._cursor = cursor
        self._lock = threading.RLock()

    def stop(self) -> None:
        """Stop the subscription. The function is not called again; a call that has started may still run."""
        self.stopped = True

    def deliver(self, live_after: Callable[[int], Iterator[LiveRows]]) -> None:
        """Call the subscriber's function with the results of each epoch that it has not received yet."""
        with self._lock:
            for rows in live_after(self._cursor):
                if self.stopped:
                    return
                self._cursor = rows.epoch
                try:
                    self._receive(rows)
                except Exception as problem:  # an error of a subscriber must not stop the query
                    self.error, self.stopped = problem, True
                    logging.getLogger("slicemill").exception(
                        "a subscriber of %s failed and is not called again", self._query
                    )
