"""Engine (`Mill`) that runs continuous queries on Spark.

with Mill(home="work") as mill:
    mill.execute(open("examples/auction.esl").read())
    mill.start()
    hot = mill.queries["hot_items"]
    ...

`Mill` assembles the components and starts and stops them. All other operations are methods of the component
that owns them:

    mill.home          journal, logs and checkpoints
    mill.running       RunningCatalog: declared names with their plan, queries, streams and watermarks
    mill.statements    StatementExecutor: scripts, EXPLAIN REPLACE, versions
    mill.tables        Tables: current rows of tables and views, REFRESH
    mill.lifecycle     QueryLifecycle: PAUSE, RESUME, RESTART, retries
    mill.backfills     Backfills: queries that read the past
    mill.dispatcher    Dispatcher: scheduling loop, checkpoints, policy
    mill.rescaler      Rescaler: number of workers and subtasks
    mill.retention     RetentionCollector: frees what all readers have consumed
    mill.sinks, mill.alerts
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from slicemill.catalog.catalog import Catalog, QueryDefinition, Statement
from slicemill.columns.rows import with_unique_names
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.errors import EngineStopped, SlicemillError
from slicemill.lifecycle.alerts import AlertRunner
from slicemill.lifecycle.backfill import Backfills
from slicemill.lifecycle.pause_and_retry import QueryLifecycle
from slicemill.lifecycle.query import Query, QueryContext
from slicemill.lifecycle.relations import Tables
from slicemill.lifecycle.retention import RetentionCollector
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.statement_executor import StatementExecutor
from slicemill.lifecycle.tables import TableVersions
from slicemill.lifecycle.task_changes import TaskChanges
from slicemill.lifecycle.undeclared_logs import remove_undeclared
from slicemill.metrics.run_record import RunRecord
from slicemill.plan.partitioning import MOST_SUBTASKS
from slicemill.plan.placement import AUTO, parse_placement_kind
from slicemill.runtime.autoscaler import Autoscaler
from slicemill.runtime.cluster import Cluster
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.rescale import Rescaler
from slicemill.runtime.run_metrics import RunMetrics
from slicemill.runtime.spark_ingest import SparkIngest
from slicemill.runtime.state_view import explain_plan
from slicemill.runtime.streams import SourceFailed, check_sources
from slicemill.runtime.workers.sharing import Execution, Pool
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import policy_named
from slicemill.sql.errors import SourceText
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import StorageFull, unique_name
from slicemill.storage.home import Home
from slicemill.time import SECOND_US, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOGGER = logging.getLogger("slicemill")

_CLOCK_BEHIND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, workers and sources of an engine. `slicemill.testing` replaces them.

    If `read_sources` is False, rows arrive only through `Mill.feed`.
    """

    clock: Callable[[], int] = wall_clock_us
    pool: Pool | None = None
    read_sources: bool = True


class Mill:
    """Engine that runs the continuous queries of one home directory.

    If the home directory exists, the engine continues from its logs and checkpoints.

    - `spark`: a session, or a future of a session (`begin_session`), which `close` stops
    - `home`: folder of logs and state; default: a temporary folder
    - `master`: Spark master of a new session
    - `folder`: base of relative paths of sources and sinks
    - `policy`: scheduling policy that picks the next query to run (docs/scheduling.md)
    - `subtasks`, `placement`: maximum number of subtasks (parallel instances) of a task, and how rows are
      distributed among them (docs/engine.md)
    - `poll_ms`: interval at which Spark polls its sources
    - `keep_s`: retention of results after all sinks and followers have read them
    - `durability`: commits survive a crash of the process, or also a power failure of the machine
    - `execution`: "workers" keeps long-lived workers on the executors; "jobs" sends each message as an
      ordinary Spark job
    - `progress`: function that is called with each step of the start
    """

    _environment = Environment()

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
        progress: Callable[[str], None] | None = None,
    ) -> None:
        chooser, kind = Chooser(policy_named(policy)), parse_placement_kind(placement)
        if subtasks is not None and not 1 <= subtasks <= MOST_SUBTASKS:
            raise SlicemillError(f"subtasks must be from 1 to {MOST_SUBTASKS:,}")
        clock, folder, identity = self._environment.clock, Path(folder), unique_name()
        self._temporary = tempfile.TemporaryDirectory(prefix="slicemill-") if home is None else None
        folder_of_home = Path(self._temporary.name if self._temporary else home or "").resolve()
        # Errors in the home directory are raised before Spark starts, which takes seconds.
        self.home = Home(folder_of_home, durability=durability)
        self.home.lock()
        try:
            self.home.open(progress)
            remove_undeclared(self.home)
            _warn_of_late_clock(self.home)
            self._cluster = Cluster(
                spark, self._environment.pool, master=master, execution=execution, progress=progress
            )
        except BaseException:
            self.home.unlock()
            raise
        self._closed = False
        self.dispatcher = Dispatcher(
            self._cluster.pool,
            self.home,
            identity,
            clock,
            chooser,
            self._after_run,
        )
        self._run_metrics = RunMetrics(self.dispatcher, clock)
        self.rescaler = Rescaler(self.home, self.dispatcher, identity, self._cluster)
        tables = TableVersions(self.home, folder, lambda: self._cluster.spark)
        limit = subtasks or self._cluster.default_subtasks()
        self.sinks = SinkRunner(self.home)
        self._ingest = SparkIngest(self._cluster.session, folder, self.dispatcher, clock)
        self.running = RunningCatalog(
            home=self.home,
            mill=identity,
            folder=folder,
            clock=clock,
            read_sources=self._environment.read_sources,
            poll_ms=poll_ms,
            dispatcher=self.dispatcher,
            tables=tables,
            changes=TaskChanges(self.home, self.dispatcher, tables, identity, limit, kind),
            sinks=self.sinks,
            ingest=self._ingest,
            handle=lambda query: Query(query, context),
        )
        self.lifecycle = QueryLifecycle(self.running)
        self.alerts = AlertRunner(self.running, self.lifecycle)
        self.statements = StatementExecutor(self.running, self.lifecycle, self.alerts)
        self.backfills = Backfills(running=self.running)
        self.tables = Tables(self.running)
        self.retention = RetentionCollector(
            self.running,
            int(keep_s * SECOND_US),
            lambda: [*self.sinks.cursors(), *self.alerts.cursors(), *self.tables.writer.cursors()],
        )
        context = QueryContext(
            self.running, self.statements, self.lifecycle, self.backfills, self._run_metrics
        )
        between_rounds = self.dispatcher.between_rounds
        if subtasks is None and kind is None:
            between_rounds.append(Autoscaler(self.rescaler, self._cluster.pool, clock).look)
        between_rounds += [self.lifecycle.look, self.tables.writer.look, self.backfills.look]
        self.dispatcher.advance = self.backfills.advance

    # -- statements and queries ------------------------------------------------------------------------

    def execute(self, esl: str | SourceText, by: str | None = None) -> list[Statement]:
        """Run all statements of a script, or none of them if one has an error.

        The home directory records `by` as the user of the statements; default: the user of this process.
        INSERT, UPDATE, DELETE and TRUNCATE take effect after all declarations.
        """
        return self.statements.execute(esl, by)

    def query(self, esl: str) -> Query:
        """Register one query, `SELECT …` or `CREATE QUERY …`. Return the handle of the query."""
        queries = [statement for statement in self.execute(esl) if isinstance(statement, QueryDefinition)]
        if len(queries) != 1:
            raise SlicemillError(
                f"the text has {len(queries)} SELECT or CREATE QUERY statements; write exactly one"
            )
        return self.queries[queries[0].name]

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of an ad hoc query, `SELECT …`, over the rows that are stored now.

        The query may read tables, views, streams and continuous queries (docs/server.md).
        """
        # DuckDB is imported only here, because most engines answer no ad hoc queries.
        from slicemill.adhoc.query import run_adhoc_query
        from slicemill.adhoc.relations import queryable_relation

        with run_adhoc_query(
            sql, lambda name: queryable_relation(self.running, self.tables, self.statements, name)
        ) as answer:
            table = pa.concat_tables(
                [answer.first, *(pa.Table.from_batches([batch]) for batch in answer.rest)]
            )
        rows: list[dict[str, Any]] = with_unique_names(table).to_pylist()
        return rows

    def check(self, esl: str) -> None:
        """Raise EslError if the statements have errors. Nothing is run."""
        self.statements.check(esl)

    @property
    def queries(self) -> Mapping[str, Query]:
        """Map the name of each continuous query to its handle."""
        return self.running.queries

    @property
    def catalog(self) -> Catalog:
        """Return the catalog: all declared streams, tables, queries and functions."""
        return self.running.catalog

    def explain(self, query: str | None = None, form: str = "text") -> str:
        """Return the execution plan of a query, or of all queries, with measured statistics.

        `form` is "text", "json", "svg", "mermaid" or "dot".
        """
        if query is not None and form == "text":
            return self.queries[query].explain()
        subtasks = self.running.changes.subtasks
        return explain_plan(self.running.plan.graph, self.home, subtasks, query, form)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of all queries, streams and subtasks as JSON values."""
        return self._run_metrics.of_mill(query.measured() for query in self.queries.values()).plain()

    # -- input -----------------------------------------------------------------------------------------

    def stream(self, name: str, frame: DataFrame, time: str | None = None, skew: str = "") -> None:
        """Declare a stream whose rows come from a streaming DataFrame with timestamp column `time`."""
        columns = ", ".join(f'"{field.name}" {field.dataType.simpleString()}' for field in frame.schema)
        order = f' ORDER BY "{time}"' if time is not None else ""
        self._ingest.frames[name.lower()] = frame
        self.execute(f'CREATE STREAM "{name}" ({columns}){order}{f" SKEW {skew}" if skew else ""}')

    def feed(self, name: str, table: pa.Table) -> None:
        """Append rows to a stream without a source. The rows count as arriving now."""
        declared = self.catalog.relation(name)
        stream = self.running.streams.get(declared.name) if declared is not None else None
        if stream is None or not stream.handed:
            raise SlicemillError(f"{name} is no stream that a program feeds; declare it without a SOURCE")
        stream.feed(table, self.running.clock())
        self.dispatcher.notify()

    # -- running ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Resume all tasks from their committed state.

        Declare all queries of the tasks first. A task that resumed with only some of its queries would skip
        the input of its other queries.
        """
        self.running.open()
        self.tables.writer.flush_dropped()

    def start(self) -> None:
        """Read the sources and run the queries until `stop`, `drain` or `close`."""
        self.open()
        self.running.start_reading()
        self.dispatcher.start()
        self.sinks.start()
        self.alerts.start()
        self.tables.refresher.start()

    def stop(self) -> None:
        """Stop the reading of sources and all queries. `start` continues from the last commit."""
        self.tables.refresher.stop()
        with self._spark_may_be_gone():
            self.running.stop_reading()
        self.dispatcher.stop()
        self.sinks.stop()
        self.alerts.stop()

    def drain(self) -> None:
        """Read all current rows, end the streams, and emit all results.

        If a source cannot be read, its error is raised last, after all other queries have finished.
        """
        self.stop()
        with suppress(SourceFailed):
            self.running.read_all()
        self.dispatcher.end_streams()
        self.dispatcher.run_all()
        self.tables.writer.write_all()
        self.sinks.deliver_new()
        self.alerts.deliver_new()
        check_sources(self.dispatcher.streams.values())

    def close(self, *, checkpoint: bool = True, within_s: float | None = None) -> None:
        """Stop the engine, checkpoint all tasks, and release the workers and the home directory.

        The Spark session is stopped if this engine started the session. Workers get `within_s` seconds to
        finish and to checkpoint. State that is not written by then is replayed from the logs when the home
        directory is opened again.
        """
        if self._closed:
            return
        self._closed = True
        if within_s is not None:
            self.dispatcher.end_within(within_s)
        self.stop()
        # If the engine was never opened, no run has committed the new versions of tables.
        if not self.running.opened:
            self.home.commit(Change(tables=self.running.tables.changes()))
        with suppress(EngineStopped):
            self._write_state(checkpoint)
        self.dispatcher.close()
        self.sinks.close()
        with self._spark_may_be_gone():
            self._cluster.return_workers()
        self.home.close()
        self.home.unlock()
        with self._spark_may_be_gone():
            self._cluster.stop_session()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Mill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_state(self, checkpoint: bool) -> None:
        with self.dispatcher.paused():
            self.dispatcher.check()
            if checkpoint:
                self.dispatcher.checkpoint_all()
                # Statistics of stateless tasks are stored here, because they are in no checkpoint.
                learned = {
                    task.id: {"statistics": task.statistics.plain()}
                    for task in self.dispatcher.tasks.values()
                    if task.statistics.runs
                }
                # Statistics that cannot be stored are collected again after a restart.
                with suppress(StorageFull):
                    self.home.commit(Change(tasks=learned))
            self.dispatcher.forget((), ())

    def _spark_may_be_gone(self) -> AbstractContextManager[None]:
        """Ignore errors of Spark if the engine has failed, because Spark's Java process may have ended."""
        return suppress(Exception) if self.dispatcher.failure is not None else nullcontext()

    def _after_run(self, run: RunRecord) -> None:
        for log, rows in run.written.items():
            query = self.queries.get(log)
            if query is None:
                continue
            query.error = run.failed.get(log)
            readable = rows > 0 and query.error is None and query.log.hold is None
            self._run_metrics.add(log, run, readable=readable)
            if readable:
                query.delivered()
        self.sinks.notify()
        self.alerts.notify()
        if self.retention.collect_when_due():
            self._cluster.grow()


def _warn_of_late_clock(home: Home) -> None:
    """Warn if the clock of this machine is behind the time of the last commit in the home directory."""
    behind_us = wall_clock_us.not_before(home.committed_us)
    if behind_us > _CLOCK_BEHIND_US:
        _LOGGER.warning(
            "the clock of this machine is %s s behind the last commit of %s: times go on from there",
            behind_us // SECOND_US,
            home.folder,
        )
