"""Engine (`Mill`) that runs continuous queries on Spark.

with Mill(home="work") as mill:
    mill.execute(open("examples/auction.esl").read())
    mill.start()
    hot = mill.queries["hot_items"]
    ...
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from slicemill.aggregates.udf.lookup import evaluate_relation
from slicemill.binder import bind
from slicemill.binder.script import BoundScript
from slicemill.catalog.catalog import (
    AGAIN,
    AlteredQuery,
    AlteredStream,
    Catalog,
    DroppedName,
    QueryDefinition,
    Setting,
    Statement,
    Table,
    View,
)
from slicemill.catalog.queries import RelationQuery
from slicemill.catalog.statements import LifecycleChange, Replay
from slicemill.columns.rows import plain_rows
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.errors import EngineStopped, SlicemillError
from slicemill.extension import live_values, load
from slicemill.lifecycle.add_column import with_added_columns
from slicemill.lifecycle.alerts import AlertRunner
from slicemill.lifecycle.backfill import Backfills
from slicemill.lifecycle.catalog_journal import (
    QueryVersion,
    StoredStatements,
    changes_no_task,
    log_warnings,
    new_entries,
    user,
    versions_of,
)
from slicemill.lifecycle.compaction import ChangelogTables
from slicemill.lifecycle.pause_and_retry import QueryLifecycle
from slicemill.lifecycle.query import Query
from slicemill.lifecycle.refresh import TableRefresher
from slicemill.lifecycle.replace import NOTHING_REPLACED
from slicemill.lifecycle.replace_report import ReplaceEffect, predict_effects
from slicemill.lifecycle.replay import replay
from slicemill.lifecycle.retention import RetentionCollector
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.table_sink import TableSinkWriter
from slicemill.lifecycle.tables import RejectedChange, StagedChanges, TableVersions
from slicemill.lifecycle.task_changes import TaskChanges
from slicemill.lifecycle.task_fields import complete_from_of
from slicemill.lifecycle.undeclared_logs import remove_undeclared
from slicemill.lifecycle.views import answer, window_rows
from slicemill.metrics.query_metrics import MillMetrics
from slicemill.metrics.run_record import RunRecord
from slicemill.operators.graph import QueryGraph
from slicemill.plan.partitioning import MOST_SUBTASKS
from slicemill.plan.placement import AUTO, parse_placement_kind
from slicemill.runtime.autoscaler import Autoscaler
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.driver_limit import CpuTimeLimit
from slicemill.runtime.rescale import Rescaler
from slicemill.runtime.run_metrics import RunMetrics
from slicemill.runtime.spark_ingest import SparkIngest
from slicemill.runtime.spark_session import begin_session, can_grow, configure, most_workers, worker_count
from slicemill.runtime.state_view import StoredSlice, explain_with_measures, slices_of
from slicemill.runtime.streams import RunningStream, SourceFailed, check_sources
from slicemill.runtime.workers.sharing import Execution, Pool, borrow_pool, return_pool
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import policy_named
from slicemill.sql.errors import Diagnostic, EslError, SourceText
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import StorageFull, raise_storage_full, unique_name
from slicemill.storage.home import Home
from slicemill.time import SECOND_US, wall_clock_us
from slicemill.types import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOGGER = logging.getLogger("slicemill")

_BETWEEN_COLLECTIONS_S = 2.0
_CLOCK_BEHIND_US = 1_000_000


class Mill:
    """Engine for the continuous queries of one home.

    A mill that opens an existing home continues from its logs and checkpoints.

    - `home`: folder of logs and state; default: a temporary folder
    - `folder`: base of relative paths of sources and sinks
    - `subtasks`, `placement`: maximum number of subtasks (parallel instances) of a task, and how rows are
      distributed among them (docs/engine.md)
    - `keep_s`: retention of results after all sinks and followers have read them
    - `policy`: scheduling policy that picks the next query to run (docs/scheduling.md)
    - `durability`: commits survive a crash of the process, or also a power failure of the machine
    - `execution`: "workers" keeps long-lived workers on the executors; "jobs" sends each message as an
      ordinary Spark job
    - `read_sources`: with False, rows arrive only through `feed`
    - `spark`: a session, or a future of a session (`begin_session`), which `close` stops
    """

    def __init__(
        self,
        spark: SparkSession | Future[SparkSession] | None = None,
        home: str | Path | None = None,
        *,
        master: str | None = None,
        folder: str | Path = ".",
        policy: str = "fcfs",
        subtasks: int | None = None,
        placement: str = AUTO,
        poll_ms: int = 50,
        keep_s: float = 3600,
        durability: Literal["process", "machine"] = "process",
        execution: Execution = "workers",
        clock: Callable[[], int] = wall_clock_us,
        pool: Pool | None = None,
        read_sources: bool = True,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        chooser, kind = Chooser(policy_named(policy)), parse_placement_kind(placement)
        if subtasks is not None and not 1 <= subtasks <= MOST_SUBTASKS:
            raise SlicemillError(f"subtasks must be from 1 to {MOST_SUBTASKS:,}")
        self._temporary = tempfile.TemporaryDirectory(prefix="slicemill-") if home is None else None
        folder_of_home = Path(self._temporary.name if self._temporary else home or "").resolve()
        # Errors of the home are raised before Spark starts, which takes seconds.
        self.home = Home(folder_of_home, durability=durability)
        self.home.lock()
        try:
            self.home.open(progress)
            remove_undeclared(self.home)
            behind_us = wall_clock_us.not_before(self.home.committed_us)
            if behind_us > _CLOCK_BEHIND_US:
                _LOGGER.warning(
                    "the clock of this machine is %s s behind the last commit of %s: times go on from there",
                    behind_us // SECOND_US,
                    folder_of_home,
                )
            begun = spark if isinstance(spark, Future) else None
            if spark is None and pool is None:
                begun = begin_session(master)
            self._owns_session = begun is not None
            if begun is not None and progress is not None:
                progress("starting Spark")
            self._spark = begun.result() if begun is not None else cast("SparkSession | None", spark)
            if self._spark is not None:
                configure(self._spark)
            self._execution: Execution = execution
            self._pool = pool if pool is not None else borrow_pool(self.spark.sparkContext, execution)
        except BaseException:
            self.home.unlock()
            raise
        self._borrowed = pool is None
        self._grows = self._borrowed and can_grow(self.spark.sparkContext)
        self._id = unique_name()
        self._folder = Path(folder)
        self._clock = clock
        self.changelogs = ChangelogTables()
        self._tables = TableVersions(self.home, self._folder, lambda: self.spark, self.changelogs)
        self._closed = False
        # Cache of `versions`: (kind, name) -> (number of statements in the home at that time, versions)
        self._versions: dict[tuple[str, str], tuple[int, list[QueryVersion]]] = {}
        self._collected_s = time.monotonic()
        self.dispatcher = Dispatcher(self._pool, self.home, self._id, clock, chooser, self._after_run)
        self._measuring = RunMetrics(self.dispatcher, clock)
        self.replacing = Rescaler(self.home, self.dispatcher, self._id)
        if subtasks is None and kind is None:
            self.dispatcher.between_rounds.append(Autoscaler(self.replacing, self._pool, clock).look)
        subtasks = subtasks or self._default_subtasks()
        self._changes = TaskChanges(self.home, self.dispatcher, self._tables, self._id, subtasks, kind)
        self.sinks = SinkRunner(self.home)
        self.alerts = AlertRunner(self, clock)
        self.collector = RetentionCollector(self.home, self.dispatcher, int(keep_s * SECOND_US), clock)
        self.refreshing = TableRefresher(lambda: self.catalog, self.refresh, clock)
        self._changing = threading.RLock()  # held while tables or declarations change
        self._ingest = SparkIngest(self._spark, self._folder, self.dispatcher, clock)
        self._running = RunningCatalog(
            home=self.home,
            mill=self._id,
            folder=self._folder,
            clock=clock,
            read_sources=read_sources,
            poll_ms=poll_ms,
            dispatcher=self.dispatcher,
            tables=self._tables,
            changes=self._changes,
            sinks=self.sinks,
            ingest=self._ingest,
            handle=lambda query: handle_of(self, self._measuring, query),
        )
        self.lives = QueryLifecycle(self._running)
        self.dispatcher.between_rounds.append(self.lives.look)
        self.backfills = Backfills(running=self._running)
        self.writing = TableSinkWriter(self._running, self._tables, self._changing, clock)
        self.dispatcher.between_rounds.append(self.writing.look)
        self.dispatcher.advance = self.backfills.advance
        self.dispatcher.between_rounds.append(self.backfills.look)

    def _default_subtasks(self) -> int:
        """Return half of the workers.

        Other workers read sources or run tasks that are not partitioned.
        """
        return max(1, worker_count(self._spark.sparkContext) // 2) if self._spark is not None else 1

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise SlicemillError("this mill works without a Spark session")
        return self._spark

    @property
    def folder(self) -> Path:
        """Base folder of relative paths of sources and sinks."""
        return self._folder

    @property
    def catalog(self) -> Catalog:
        """Declared streams, tables, queries and functions."""
        return self._running.catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        self._running.catalog = catalog

    @property
    def queries(self) -> dict[str, Query]:
        """Handles of the continuous queries, by name."""
        return self._running.queries

    @property
    def graph(self) -> QueryGraph:
        """The running query graph, shared by all queries."""
        return self._running.plan.graph

    @property
    def subtasks(self) -> int:
        """Maximum number of subtasks of the tasks of new queries."""
        return self._changes.subtasks

    @property
    def streams(self) -> dict[str, RunningStream]:
        """Declared streams that queries read, by name."""
        return {name: stream for name, stream in self.dispatcher.streams.items() if AGAIN not in name}

    # -- declaring -------------------------------------------------------------------------------------

    def execute(self, esl: str | SourceText, by: str | None = None) -> list[Statement]:
        """Run the statements of a script, all or none.

        The home records `by` as the user of the statements; default: the user of this process. INSERT,
        UPDATE, DELETE and TRUNCATE take effect after all declarations.
        """
        with self._changing, raise_storage_full(self.home.folder):
            return self._execute(esl, by)[0]

    def change_rows(self, esl: str | SourceText, by: str | None = None) -> list[int]:
        """Run INSERT, UPDATE, DELETE and TRUNCATE, all or none.

        Return the number of rows that each statement affects. Stream rows that arrive later are joined with
        the new rows.
        """
        with self._changing, raise_storage_full(self.home.folder):
            return list(self._execute(esl, by)[1])

    def _execute(self, esl: str | SourceText, by: str | None) -> tuple[list[Statement], Sequence[int]]:
        self.check()
        kept = StoredStatements.of(self.home.statements, self.home.folder, self.home.logs)
        bound = bind(esl, self.catalog, lambda: kept.catalog)
        catalog, same, replaced = kept.reconcile(bound)
        log_warnings(bound)
        statements = [statement for statement, _ in bound.statements]
        dropped = [statement for statement in statements if isinstance(statement, DroppedName)]
        with CpuTimeLimit("the change of tables"):
            staged = self._stage_changes(bound, catalog, dropped)
        entries = new_entries(bound, self.home.statements, self._clock(), same, by)
        alerts = self.alerts.begun(statements)
        # One record holds all changes, so that a script is atomic across a crash.
        others = Change(alerts=alerts)
        with self.dispatcher.dropping(one.name for one in dropped):
            if all(changes_no_task(statement) for statement in statements):
                others = replace(others, catalog=entries)
                if staged.versions:
                    self._running.commit_tables(others, staged)
                else:
                    self.home.commit(others)
                self.catalog = catalog
            elif replaced:
                self._running.replace_with(catalog, kept, replaced, entries, bound.source, others, staged)
            elif any(isinstance(statement, (AlteredQuery, AlteredStream)) for statement in statements):
                catalog, altering = with_added_columns(catalog, bound, entries, self.home)
                self._running.alter_with(catalog, dropped, kept, altering, others, staged)
            else:
                declared = replace(NOTHING_REPLACED, entries=entries)
                self._running.change_to(catalog, dropped, declared, others, staged)
        self.alerts.watch(self.catalog.alerts, alerts)
        self._set(statements)
        for statement in statements:
            if isinstance(statement, LifecycleChange):
                self.lives.change(statement, user() if by is None else by)
        done = [self._run_replay(one) if isinstance(one, Replay) else one for one in statements]
        return done, staged.counts

    def _run_replay(self, statement: Replay) -> Replay:
        self.open()
        outcome = replay(statement, self.dispatcher, self.home, self._folder, self._clock())
        return replace(statement, outcome=outcome)

    def _stage_changes(
        self, bound: BoundScript, catalog: Catalog, dropped: Sequence[DroppedName]
    ) -> StagedChanges:
        """Compute the row changes of a script before its declarations take effect."""
        gone = [name.name for name in dropped if name.kind == "TABLE"]
        changes = [change for change, _ in bound.changes]
        try:
            return self._tables.stage(changes, catalog, gone, self._window)
        except RejectedChange as refused:
            index = bound.changes[refused.index][1]
            raise EslError(bound.source, [Diagnostic(refused.message, index, refused.hint)]) from None

    def explain_replace(self, esl: str | SourceText) -> list[ReplaceEffect]:
        """Predict what statements with OR REPLACE would keep, without running them."""
        return predict_effects(self._running, esl)

    def restore(self) -> list[str]:
        """Declare the home's stored statements; return the names of unreadable statements."""
        kept = StoredStatements.of(self.home.statements, self.home.folder, self.home.logs)
        self._running.change_to(kept.catalog, ())
        self.alerts.watch(self.catalog.alerts)
        self._set(kept.settings)
        return kept.unread

    def _set(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Setting):
                self.dispatcher.chooser.set_policy(statement.value, statement.component)

    def query(self, esl: str) -> Query:
        """Register one query, `SELECT …` or `CREATE QUERY …`; return its handle."""
        queries = [statement for statement in self.execute(esl) if isinstance(statement, QueryDefinition)]
        if len(queries) != 1:
            raise SlicemillError("give one SELECT, or one CREATE QUERY")
        return self.queries[queries[0].name]

    def ask(self, name: str) -> list[Row]:
        """Return the current rows of an ad hoc query.

        An ad hoc query reads only tables and views. Sources of its tables are read again. A view over a
        stream contains only rows that arrived after the view was declared. Its window ends at the newest row,
        or at the clock if the clock advances the watermark. For a continuous query with a changelog, the
        changelog is applied and the resulting rows are returned.
        """
        query = self.queries.get(name.lower())
        if query is not None and query.schema.changelog:
            return plain_rows(query.table(), query.schema.own)
        with CpuTimeLimit(f"query {name}"):
            return answer(self.catalog, name, self._held)

    def held(self, name: str) -> Sequence[Row]:
        """Return the current rows of a table or view."""
        if not isinstance(self.catalog.relation(name), View):
            return self._held(name)
        with CpuTimeLimit(f"view {name}"):
            return self._held(name)

    def _held(self, name: str) -> Sequence[Row]:
        relation = self.catalog.relation(name)
        if isinstance(relation, View) and isinstance(relation.query, RelationQuery):
            return evaluate_relation(relation.query, self.catalog, self._held)
        if isinstance(relation, View):
            return self._window(relation)
        return self._tables.now(self._table(name))

    def _window(self, view: View) -> Sequence[Row]:
        """Return the current rows of a view over a stream. A new view has no log yet."""
        log = self.home.logs.get(view.name)
        return [] if log is None else window_rows(view, log, self.dispatcher.watermark(log.name))

    def rows_of_table(self, name: str) -> pa.Table:
        """Return the current rows of a table as a pyarrow table."""
        return self._tables.columns_now(self._table(name))

    def table(self, name: str, rows: Sequence[Row]) -> None:
        """Set the rows of a table, in place of its source.

        Stream rows that arrive later are joined with the new rows. The table may be declared afterwards.
        """
        self._tables.give(name, rows)
        if isinstance(self.catalog.relation(name), Table):
            self.refresh(name)

    def refresh(self, name: str) -> None:
        """Read the source of a table again.

        Stream rows that arrive later are joined with the new rows.
        """
        with self._changing:
            if self._tables.refresh(self._table(name)):
                self._running.commit_tables()

    def _table(self, name: str) -> Table:
        table = self.catalog.relation(name)
        if not isinstance(table, Table):
            raise SlicemillError(f"there is no table {name}; declare it with CREATE TABLE")
        return table

    def stream(self, name: str, frame: DataFrame, time: str | None = None, skew: str = "") -> None:
        """Declare a stream fed by a DataFrame with timestamp column `time`."""
        columns = ", ".join(f'"{field.name}" {field.dataType.simpleString()}' for field in frame.schema)
        order = f' ORDER BY "{time}"' if time is not None else ""
        self._ingest.frames[name.lower()] = frame
        self.execute(f'CREATE STREAM "{name}" ({columns}){order}{f" SKEW {skew}" if skew else ""}')

    def feed(self, name: str, table: pa.Table) -> None:
        """Append rows, which arrive now, to a stream without a source."""
        declared = self.catalog.relation(name)
        stream = self.streams.get(declared.name) if declared is not None else None
        if stream is None or not stream.handed:
            raise SlicemillError(f"{name} is no stream that a program feeds; declare it without a SOURCE")
        stream.feed(table, self._clock())
        self.dispatcher.notify()

    @property
    def policy(self) -> str:
        """Name of the scheduling policy, such as `hnr`."""
        return self.dispatcher.chooser.policy.name

    @policy.setter
    def policy(self, name: str) -> None:
        self.dispatcher.chooser.set_policy(name)

    def versions(self, kind: str, name: str) -> list[QueryVersion]:
        """Return all definitions that a name has had, oldest first."""
        count = len(self.home.statements)
        known = self._versions.get((kind, name))
        if known is None or known[0] != count:
            known = self._versions[kind, name] = count, versions_of(self.home.statements, kind, name)
        return known[1]

    def set_policy(self, name: str, component: str) -> None:
        """Set the policy of the component of a stream or query."""
        self.execute(f"SET policy = '{name}' FOR \"{component}\"")

    def metrics(self) -> MillMetrics:
        """Return the metrics of all queries; its `plain()` is JSON-compatible."""
        return self._measuring.of_mill(query.metrics() for query in self.queries.values())

    # -- running ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Resume all tasks from their committed state.

        Declare all their queries first. A task that resumed with only some of its queries would skip the
        input of its other queries.
        """
        self._running.open()
        self.writing.flush_dropped()

    def start(self) -> None:
        """Read the sources and run the queries until `stop`, `drain` or `close`."""
        self.open()
        self._running.start_reading()
        self.dispatcher.start()
        self.sinks.start()
        self.alerts.start()
        self.refreshing.start()

    def set_workers(self, count: int | None = None) -> None:
        """Scale to this many workers, by default to all slots.

        Results do not change. Subtasks are rebalanced: new workers take subtasks of busy workers, and removed
        workers hand over theirs.
        """
        context = self._spark.sparkContext if self._spark is not None else None
        if count is None:
            count = max(1, worker_count(context)) if context is not None else 1
        most = most_workers(context) if context is not None and self._execution == "workers" else count
        if not 1 <= count <= max(most, 1):
            raise SlicemillError(f"Spark has slots for 1 to {max(most, 1)} workers beside its own tasks")
        self._grows = False
        with self.dispatcher.paused():
            self.dispatcher.checkpoint(self.dispatcher.tasks.values())  # so that no subtask is replayed
            self.dispatcher.resize(count)

    def stop(self) -> None:
        """Stop reading sources and running queries. `start` continues from the last commit."""
        self.refreshing.stop()
        with self._spark_may_be_gone():
            self._running.stop_reading()
        self.dispatcher.stop()
        self.sinks.stop()
        self.alerts.stop()

    def _spark_may_be_gone(self) -> AbstractContextManager[None]:
        """Ignore Spark errors after a failure: the Java process may have ended."""
        return suppress(Exception) if self.dispatcher.failure is not None else nullcontext()

    def check(self) -> None:
        """Raise if the dispatcher has failed.

        A source error does not raise here: it is in the `error` of the stream.
        """
        self.dispatcher.check()

    def read_all(self) -> None:
        """Read all current rows of the sources, without running queries."""
        self.open()
        self.dispatcher.read_all()
        if self._running.read_sources:
            self._ingest.read_to_the_end(self.streams)
        check_sources(self.dispatcher.streams.values())

    def drain(self) -> None:
        """Read all current rows, end the streams, and emit all results.

        If a source cannot be read, its error is raised last, after all other queries have finished.
        """
        self.stop()
        with suppress(SourceFailed):
            self.read_all()
        self.dispatcher.end_streams()
        self.dispatcher.run_all()
        self.writing.write_all()
        self.sinks.deliver_new()
        self.alerts.deliver_new()
        check_sources(self.dispatcher.streams.values())

    def checkpoint(self) -> None:
        """Checkpoint all tasks, so that a restart replays nothing."""
        with self.dispatcher.paused():
            self.dispatcher.checkpoint(self.dispatcher.tasks.values())

    def close(self, *, checkpoint: bool = True, within_s: float | None = None) -> None:
        """Stop, checkpoint all tasks, and release workers and home.

        The Spark session is stopped if this mill started the session. Workers get `within_s` seconds to
        finish and to checkpoint. State that is not written by then is replayed from the logs when the home is
        opened again.
        """
        if self._closed:
            return
        self._closed = True
        if within_s is not None:
            self.dispatcher.end_within(within_s)
        self.stop()
        if not self._running.opened:  # no run has committed the new table versions
            self.home.commit(Change(tables=self._tables.changes()))
        with suppress(EngineStopped):
            self._write_state(checkpoint)
        self.dispatcher.close()
        self.sinks.close()
        with self._spark_may_be_gone():
            if self._borrowed:
                return_pool(self.spark.sparkContext, self._execution, self._pool)
        self.home.close()
        self.home.unlock()
        with self._spark_may_be_gone():
            if self._owns_session:
                self.spark.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _write_state(self, checkpoint: bool) -> None:
        with self.dispatcher.paused():
            self.dispatcher.check()
            if checkpoint:
                self.dispatcher.checkpoint(self.dispatcher.tasks.values())
                # Statistics of tasks without state are in no checkpoint.
                learned = {
                    task.id: {"statistics": task.statistics.plain()}
                    for task in self.dispatcher.tasks.values()
                    if task.statistics.runs
                }
                with suppress(StorageFull):  # the statistics are collected again after a restart
                    self.home.commit(Change(tasks=learned))
            self.dispatcher.forget((), ())

    def __enter__(self) -> Mill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _after_run(self, run: RunRecord) -> None:
        for log, rows in run.written.items():
            query = self.queries.get(log)
            if query is None:
                continue
            query.error = run.failed.get(log)
            readable = rows > 0 and query.error is None and query.log.hold is None
            self._measuring.add(log, run, readable=readable)
            if readable:
                query.delivered()
        self.sinks.notify()
        self.alerts.notify()
        if time.monotonic() - self._collected_s >= _BETWEEN_COLLECTIONS_S:
            with suppress(StorageFull):  # the next collection frees the same files
                self.collect()
            if self._grows and most_workers(self.spark.sparkContext) > len(self._pool.members()):
                self._pool.resize(most_workers(self.spark.sparkContext))

    def collect(self) -> None:
        """Retention: free log epochs that all readers have consumed."""
        self._collected_s = time.monotonic()
        if not self._running.opened:
            return  # the readers are not known yet
        readers = [*self.sinks.cursors(), *self.alerts.cursors(), *self.writing.cursors()]
        self.collector.collect(self.catalog, self.dispatcher.streams, readers)

    def lag_rows(self, query: str) -> int:
        """Return the number of unread input rows of a query's task."""
        task = self.dispatcher.running.writers.get(query)
        return task.rows_left if task is not None else 0


# Handles of running queries.


def handle_of(mill: Mill, measuring: RunMetrics, query: QueryDefinition) -> Query:
    """Return the handle of a continuous query; its metrics start now."""
    name, counted = query.name, measuring.begin(query)

    def explain() -> str:
        words = explain_with_measures(mill.graph, name, mill.home, mill.subtasks)
        return words + mill.backfills.describe(name) + measuring.describe_subtasks(name)

    def state() -> list[StoredSlice]:
        mill.checkpoint()
        return [held for held in slices_of(mill.home) if name in held.wanted]

    def values() -> list[dict[str, Any]]:
        mill.checkpoint()
        return [value for live in live_values() for value in load(live.read)(mill.home, name)]

    return Query(
        name,
        query.schema,
        mill.home.logs[name],
        mill.execute,
        explain,
        lambda: complete_from_of(name, mill.graph, mill.dispatcher.tasks.values()),
        state,
        values,
        lambda: measuring.now(counted, mill.graph),
        lambda: mill.lives.of(name),
        lambda: mill.versions("query", name),
        lambda: mill.backfills.progress_of(name),
    )
