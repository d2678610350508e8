"""Mill: continuous queries on Spark, from a script or from Python.

with Mill(home="work") as mill:
    mill.execute(open("examples/auction.esl").read())
    mill.start()
    hot = mill.queries["hot_items"]
    ...
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from slicemill.columns.rows import plain_rows
from slicemill.connectors.readers import has_readers
from slicemill.connectors.sinks.registry import open_sink
from slicemill.connectors.sinks.runner import SinkRunner
from slicemill.engine.adapting.placing import Placing
from slicemill.engine.adapting.replacing import Replacing
from slicemill.engine.changing.joining import complete_from_of, placed_queries, with_logs, without_log
from slicemill.engine.changing.statements import KeptStatements, log_warnings, new_entries
from slicemill.engine.changing.tables import TableVersions
from slicemill.engine.changing.unit_changes import UnitChanges
from slicemill.engine.changing.views import answer, held_now, passed_by
from slicemill.engine.dispatcher import Dispatcher
from slicemill.engine.measuring import Measuring
from slicemill.engine.model_view import model_values_of
from slicemill.engine.query import Query
from slicemill.engine.running_units import Goal
from slicemill.engine.session import begin_session, configure, grows, most_workers, worker_count
from slicemill.engine.spark_ingest import SparkIngest
from slicemill.engine.state_view import StoredSlice, explained, slices_of
from slicemill.engine.streams import (
    RunningStream,
    SourceFailed,
    Supply,
    check_sources,
    streams_to_read,
)
from slicemill.engine.unit import RunningUnit
from slicemill.engine.work import RunDone
from slicemill.engine.workers.sharing import Execution, Pool, borrow, give_back
from slicemill.errors import SlicemillError
from slicemill.esl import SourceText, bind
from slicemill.esl.types.catalog import (
    ERRORS,
    HELD,
    Catalog,
    DroppedName,
    QueryDefinition,
    Setting,
    SourceSpec,
    Statement,
    Stream,
    Table,
    View,
)
from slicemill.esl.types.relation import RelationQuery
from slicemill.metrics.query_metrics import MillMetrics, QueryMetrics
from slicemill.operators.graph import QueryGraph
from slicemill.plan.needs import needs_of
from slicemill.plan.partitions import MOST_CELLS, needed_by_log
from slicemill.plan.placement import AUTO, placement_named
from slicemill.plan.planner import Plan, Planner
from slicemill.plan.reads import views_to_answer
from slicemill.rows import Row
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies.policy_registry import policy_named
from slicemill.storage.changes import Change
from slicemill.storage.files import unique_name
from slicemill.storage.home import Home
from slicemill.storage.retention import epochs_to_free
from slicemill.time import BEGINNING, END, US, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BETWEEN_COLLECTIONS_S = 2.0
_COMPUTED = ("QUERY", "STREAM", "CLASSIFIER")  # what has a log


class Mill:
    """`home` keeps logs and state: a mill that is started again with the same home goes on where it was.

    `folder` is where relative paths of sources begin, `cells` how many ways work is split and `placement` how
    (docs/engine.md), `keep_s` how long results can be read after all who follow them have them, `policy`
    which query runs next where several could (docs/scheduling.md), `durability` what results outlive: the
    process, or the machine's power as well. With `execution="jobs"` work travels as ordinary Spark jobs
    instead of to workers that stay. Without `read_sources` all rows come by `feed`. A session that is yet to
    come (`begin_session`) is the mill's own.
    """

    def __init__(
        self,
        spark: SparkSession | Future[SparkSession] | None = None,
        home: str | Path | None = None,
        *,
        master: str | None = None,
        folder: str | Path = ".",
        policy: str = "fcfs",
        cells: int | None = None,
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
        chooser, kind = Chooser(policy_named(policy)), placement_named(placement)
        if cells is not None and not 1 <= cells <= MOST_CELLS:
            raise SlicemillError(f"cells must be from 1 to {MOST_CELLS:,}")
        self._temporary = tempfile.TemporaryDirectory(prefix="slicemill-") if home is None else None
        folder_of_home = Path(self._temporary.name if self._temporary else home or "").resolve()
        # What can go wrong with a home is told before Spark starts.
        self.home = Home(folder_of_home, durability=durability)
        self.home.lock()
        try:
            self.home.open(progress)
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
            self._pool = pool if pool is not None else borrow(self.spark.sparkContext, execution)
        except BaseException:
            self.home.unlock()
            raise
        self._borrowed = pool is None
        self._grows = self._borrowed and grows(self.spark.sparkContext)
        self.catalog = Catalog()
        self.queries: dict[str, Query] = {}
        self._id = unique_name()
        self._folder = Path(folder)
        self._poll_ms = poll_ms
        self._read_sources = read_sources
        self._keep_us = int(keep_s * US)
        self._clock = clock
        self._tables = TableVersions(self.home, self._folder, lambda: self.spark)
        self._opened = self._started = self._closed = False
        self._planner = Planner()
        self._plan = Plan(QueryGraph({}), ())
        self._collected_s = time.monotonic()
        self.dispatcher = Dispatcher(
            self._pool, self.home, self._id, self.watermark, clock, chooser, self._after_run
        )
        self._measuring = Measuring(self.dispatcher, clock)
        self.replacing = Replacing(self.home, self.dispatcher, self._id)
        if cells is None and kind is None:
            self.dispatcher.between_rounds = Placing(self.replacing, self._pool, clock).look
        cells = cells or self._default_cells()
        self._changes = UnitChanges(self.home, self.dispatcher, self._tables, self._id, cells, kind)
        self.sinks = SinkRunner(self.home)
        self._ingest = SparkIngest(self._spark, self._folder, self.dispatcher, clock)

    def _default_cells(self) -> int:
        """Half of the workers: the others read and run what cannot be split."""
        return max(1, worker_count(self._spark.sparkContext) // 2) if self._spark is not None else 1

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise SlicemillError("this mill works without a Spark session")
        return self._spark

    @property
    def graph(self) -> QueryGraph:
        """The query graph that runs, shared by all queries."""
        return self._plan.graph

    @property
    def cells(self) -> int:
        """The most ways in which the work of a new query is split."""
        return self._changes.cells

    @property
    def streams(self) -> dict[str, RunningStream]:
        """The declared streams that queries read, by name."""
        return self.dispatcher.streams

    # -- declaring -------------------------------------------------------------------------------------

    def execute(self, esl: str | SourceText, by: str | None = None) -> list[Statement]:
        """Run the statements of a script; with a mistake in it, none of them.

        The home remembers `by` whom: the user of this process if nobody is named.
        """
        kept = KeptStatements.of(self.home.statements, self.home.folder, self.home.logs)
        bound = bind(esl, self.catalog, lambda: kept.catalog)
        catalog, same = kept.agreed(bound)
        log_warnings(bound)
        statements = [statement for statement, _ in bound.statements]
        if all(isinstance(statement, Setting) for statement in statements):
            self.catalog = catalog  # nothing else changes, so nobody has to wait for a run to end
        else:
            self._change_to(catalog, [s for s in statements if isinstance(s, DroppedName)])
        if entries := new_entries(bound, self.home.statements, self._clock(), same, by):
            self.home.commit(Change(catalog=entries))
        self._set(statements)
        return statements

    def restore(self) -> list[str]:
        """Declare all that the home keeps; returns what this version cannot read, which stays as it is."""
        kept = KeptStatements.of(self.home.statements, self.home.folder, self.home.logs)
        self._change_to(kept.catalog, ())
        self._set(kept.settings)
        return kept.unread

    def _set(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Setting):
                self.dispatcher.chooser.set_policy(statement.value, statement.component)

    def query(self, esl: str) -> Query:
        """Register one query, `SELECT …` or `CREATE QUERY …`, and return its handle."""
        queries = [statement for statement in self.execute(esl) if isinstance(statement, QueryDefinition)]
        if len(queries) != 1:
            raise SlicemillError("give one SELECT, or one CREATE QUERY")
        return self.queries[queries[0].name]

    def ask(self, name: str) -> list[Row]:
        """The rows of an ad hoc query, one that reads tables and views only, as they are now.

        Sources of tables are read for it. A view over a stream holds what has come since a query asked for
        it, at the time of the newest tuple, or later where the clock moves the stream. Of a continuous query
        whose results change, these are the rows that they come to.
        """
        query = self.queries.get(name.lower())
        if query is not None and query.schema.changelog:
            return plain_rows(query.table(), query.schema.own)
        return answer(self.catalog, name, self.held)

    def held(self, name: str) -> Sequence[Row]:
        """The rows of a table, or of a view over a stream, as they are now."""
        relation = self.catalog.relation(name)
        if isinstance(relation, View) and not isinstance(relation.query, RelationQuery):
            return held_now(relation, self.home, self.watermark)
        return self._tables.now(self._table(name))

    def table(self, name: str, rows: Sequence[Row]) -> None:
        """Give a table these rows, in place of its source: tuples that arrive from now on meet them.

        The table may be declared later.
        """
        self._tables.give(name, rows)
        if isinstance(self.catalog.relation(name), Table):
            self.refresh(name)

    def refresh(self, name: str) -> None:
        """Read the source of a table again: tuples that arrive from now on meet what it holds."""
        self._tables.refresh(self._table(name))
        with self.dispatcher.paused():
            if self._opened:
                self.dispatcher.admit_handed()
                self._run_units(self._plan, self.catalog)

    def _table(self, name: str) -> Table:
        table = self.catalog.relation(name)
        if not isinstance(table, Table):
            raise SlicemillError(f"there is no table {name}; declare it with CREATE TABLE")
        return table

    def stream(self, name: str, frame: DataFrame, time: str | None = None, skew: str = "") -> None:
        """Declare a stream that a streaming DataFrame feeds; `time` names its timestamp column."""
        columns = ", ".join(f'"{field.name}" {field.dataType.simpleString()}' for field in frame.schema)
        order = f' ORDER BY "{time}"' if time is not None else ""
        self._ingest.frames[name.lower()] = frame
        self.execute(f'CREATE STREAM "{name}" ({columns}){order}{f" SKEW {skew}" if skew else ""}')

    def feed(self, name: str, table: pa.Table) -> None:
        """Hand rows to a stream that has no source of its own; they arrive now, in this order."""
        declared = self.catalog.relation(name)
        stream = self.streams.get(declared.name) if declared is not None else None
        if stream is None or not stream.handed:
            raise SlicemillError(f"{name} is no stream that a program feeds; declare it without a SOURCE")
        stream.feed(table, self._clock())
        self.dispatcher.notify()

    @property
    def policy(self) -> str:
        """The policy by which units are picked, `hnr` for instance. Changing it loses and changes nothing."""
        return self.dispatcher.chooser.policy.name

    @policy.setter
    def policy(self, name: str) -> None:
        self.dispatcher.chooser.set_policy(name)

    def set_policy(self, name: str, component: str) -> None:
        """Pick among the units of one component, named by a stream or query in it, by a policy of its own."""
        self.execute(f"SET policy = '{name}' FOR \"{component}\"")

    def metrics(self) -> MillMetrics:
        """How all queries are doing; `plain()` of it is for JSON."""
        return self._measuring.of_mill(query.metrics() for query in self.queries.values())

    # -- running ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take up the units where they were, once all is registered that belongs to them.

        A unit that went on from its state with some of its queries would pass by the input of the others.
        """
        with self.dispatcher.paused():
            if not self._opened:
                self._changes.note_left_out(self.catalog)
                self._run_units(self._plan, self.catalog)
                self._opened = True

    def start(self) -> None:
        """Read the sources and run the queries until `stop`, `drain` or `close`."""
        self._started = True
        self.open()
        if self._read_sources:
            self._ingest.start(self.streams, self._poll_ms)
        self.dispatcher.start()
        self.sinks.start()

    def set_workers(self, count: int | None = None) -> None:
        """Have so many workers from now on, or as many as Spark has slots for now; results do not change.

        Work follows: who comes gets cells of those that have much to do, and who goes leaves them to others.
        """
        context = self._spark.sparkContext if self._spark is not None else None
        if count is None:
            count = max(1, worker_count(context)) if context is not None else 1
        most = most_workers(context) if context is not None and self._execution == "workers" else count
        if not 1 <= count <= max(most, 1):
            raise SlicemillError(f"Spark has slots for 1 to {max(most, 1)} workers beside its own tasks")
        self._grows = False
        with self.dispatcher.paused():
            self.dispatcher.checkpoint(self.dispatcher.units.values())  # so that nobody has to replay
            self.dispatcher.resize(count)

    def stop(self) -> None:
        """Stop reading and running; what is committed stays, and `start` goes on from there."""
        self._ingest.stop()
        self.dispatcher.stop()
        self.sinks.stop()
        self._started = False

    def check(self) -> None:
        """Raise if running has stopped by itself; of a source that has failed, see its stream's `error`."""
        self.dispatcher.check()

    def read_all(self) -> None:
        """Read all that the sources hold now into the logs, and run nothing."""
        self.open()
        self.dispatcher.read_all()
        if self._read_sources:
            self._ingest.read_to_the_end(self.streams)
        check_sources(self.streams.values())

    def drain(self) -> None:
        """Read all that the sources hold now, end the streams, and run until every result is there.

        A source that cannot be read is told at the end: what does not read it is complete then.
        """
        self.stop()
        with suppress(SourceFailed):
            self.read_all()
        self.dispatcher.end_streams()
        self.dispatcher.run_all()
        self.sinks.deliver_new()
        check_sources(self.streams.values())

    def checkpoint(self) -> None:
        """Write the state that only workers have, so that a restart has nothing to replay."""
        with self.dispatcher.paused():
            self.dispatcher.checkpoint(self.dispatcher.units.values())

    def close(self, *, checkpoint: bool = True) -> None:
        """Stop, write the state that only workers have, and end the session if this mill has made it."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        with self.dispatcher.paused():
            if checkpoint:
                self.dispatcher.checkpoint(self.dispatcher.units.values())
                # What was learned of units without state is written nowhere else.
                learned = {
                    unit.id: {"statistics": unit.statistics.plain()}
                    for unit in self.dispatcher.units.values()
                    if unit.statistics.runs
                }
                self.home.commit(Change(units=learned))
            self.dispatcher.forget((), ())
        self.sinks.close()
        if self._borrowed:
            give_back(self.spark.sparkContext, self._execution, self._pool)
        self.home.close()
        self.home.unlock()
        if self._owns_session:
            self.spark.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Mill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _change_to(self, catalog: Catalog, dropped: Sequence[DroppedName]) -> None:
        """Run what a catalog has; one that is dropped and created again is a new one."""
        without = self.catalog.copy()
        for name in dropped:
            without.add(name)
        gone = [name.name for name in dropped if name.kind in _COMPUTED and not self._is_declared(name.name)]
        if any(name.lower() in (*catalog.queries, *catalog.relations) for name in gone):
            self._adopt(without)
            self._forget(gone)
            gone = []
        self._adopt(catalog)
        self._forget(gone)

    def _is_declared(self, name: str) -> bool:
        """Is it a stream whose rows come from outside? They stay: its source is read once only."""
        return name + ERRORS in self.home.logs

    def _adopt(self, catalog: Catalog) -> None:
        """Make a new catalog's graph the one that runs."""
        plan = self._planner.plan(catalog, placed_queries(self.home.units))
        graph = plan.graph
        # Before anything is registered: what cannot be placed or opened must not leave half a query behind.
        read_by = needed_by_log(self._changes.exchanges(unit, graph) for unit in plan.units)
        sinks = {
            query.name: open_sink(
                query.options.sink,
                query.name,
                query.schema,
                folder=self._folder,
                durable=self.home.durable,
            )
            for query in catalog.queries.values()
            if query.continuous and query.options.sink is not None and query.name not in self.sinks
        }
        self._tables.take_up(catalog)
        wanted = streams_to_read(graph, catalog, self.home, self.streams)
        fresh = [stream for stream in wanted if stream.name not in self.streams]
        supplies = {stream.name: self._supply(stream) for stream in fresh}
        needs = needs_of([*self.streams, *(stream.name for stream in fresh)], graph)
        if self._ingest.outdated(needs):
            self._ingest.stop()
        with self.dispatcher.paused():
            queries = [one for one in catalog.queries.values() if one.continuous]
            self.home.commit(with_logs(fresh, queries, self.home))
            for stream in fresh:
                self.streams[stream.name] = RunningStream(
                    stream, self.home, self._id, self._folder, self._clock, supplies[stream.name]
                )
            for name, running in self.streams.items():
                # A new query starts with what arrives from now on: nothing it wants may be left out any more.
                running.need(needs[name], read_by.get(name, ()))
            if self._opened:
                self._run_units(plan, catalog)
            for query in catalog.queries.values():
                if not isinstance(query.query, RelationQuery) and query.name not in self.queries:
                    self.queries[query.name] = self._handle(query)
            for name, sink in sinks.items():
                self.sinks.add(name, sink)
            unasked = {v.name for v in views_to_answer(self.catalog)} - {
                v.name for v in views_to_answer(catalog)
            }
            self.catalog, self._plan = catalog, plan
            self._forget(unasked)
        if self._started and self._read_sources:
            self._ingest.start(self.streams, self._poll_ms)

    def _supply(self, stream: Stream) -> Supply:
        if not self._read_sources:
            return Supply.PROGRAM
        if stream.name.lower() in self._ingest.frames:
            return Supply.SPARK
        if stream.source == SourceSpec():
            return Supply.PROGRAM
        spool = self.home.source_folder(stream.name)
        return Supply.READER if has_readers(stream, self._folder, spool) else Supply.SPARK

    def _run_units(self, plan: Plan, catalog: Catalog) -> None:
        units = self._changes.units_of(plan, catalog)
        running = {unit.id for unit in units}
        gone = [unit.id for unit in self.dispatcher.running.units if unit.id not in running]
        queries = [query for query in catalog.queries.values() if query.continuous]
        for log, why in ((log, why) for unit in units for log, why in unit.failed.items()):
            if log in self.queries:
                self.queries[log].error = why  # one that has failed stays stopped
        self.dispatcher.replace(units, {query.name: Goal.of(query) for query in queries})
        if gone:
            # Its queries are gone, and so is what it kept for them.
            self.home.commit(Change(dropped_units=gone))
            self.dispatcher.forget(gone, ())

    def _forget(self, names: Iterable[str]) -> None:
        """A query's results stay with its handle; its log goes, so that its name is free."""
        for name in names:
            query = self.queries.pop(name, None)
            if query is not None:
                query.detach()
            if name in self.home.logs:
                self.sinks.forget(name)
                self.home.commit(without_log(name, self.home))

    def watermark(self, log: str) -> int:
        """The watermark of a log: a stream's, or by the unit that writes it."""
        now = self._clock()
        if log in self.streams:
            return self.streams[log].watermark(now)
        writer = self.dispatcher.running.writers.get(log)
        if writer is not None:
            return writer.watermark_now(log, self.watermark)
        for fields in self.home.units.values():  # one that is still to be taken up
            if log in fields["outputs"]:
                return int(fields["output_watermarks"].get(log, BEGINNING))
        return self.streams[self.catalog.declared_stream(log).name].side_watermark(log, now)

    def _after_run(self, unit: RunningUnit, results: list[RunDone], now: int) -> None:
        for _, log in unit.plan.unit.outputs:
            query = self.queries.get(log)
            if query is None:
                continue
            query.error = unit.failed.get(log)
            self._measuring.ran(log, results)
            rows = sum(result.written[log].rows for result in results if log in result.written)
            if rows and query.error is None:
                self._measuring.delivered(log, rows, unit, results, now)
                query.delivered()
        self.sinks.notify()
        if time.monotonic() - self._collected_s >= _BETWEEN_COLLECTIONS_S:
            self.collect()
            if self._grows and most_workers(self.spark.sparkContext) > len(self._pool.members()):
                self._pool.resize(most_workers(self.spark.sparkContext))

    def collect(self) -> None:
        """Free what every unit has read and nobody will ask for again."""
        self._collected_s = time.monotonic()
        if not self._opened:
            return  # who reads what is not known yet
        cursors = [*(unit.needed_from for unit in self.dispatcher.units.values()), *self.sinks.cursors()]
        # A stream says itself what it holds back, and a view what its window holds.
        views = {view.name: view for view in views_to_answer(self.catalog)}
        others = {name + HELD for name in self.streams} | views.keys()
        logs = [log for name, log in self.home.logs.items() if name not in others]
        # All changes of a table are needed to tell what is in it.
        kept = {name: END if q.schema.changelog else self._keep_us for name, q in self.queries.items()}
        freed = epochs_to_free(logs, cursors, kept, self._clock())
        freed |= passed_by(views.values(), self.home, self.watermark)
        self.home.commit(Change(freed=freed))
        self.home.free(self.dispatcher.writers)

    def lag_rows(self, query: str) -> int:
        """Rows that wait in the logs of the unit that a query belongs to."""
        unit = self.dispatcher.running.writers.get(query)
        return sum(epoch.rows for epoch in unit.pending()) if unit is not None else 0

    def _handle(self, query: QueryDefinition) -> Query:
        def stop() -> None:
            self.execute(f'DROP QUERY "{query.name}"')

        def explain() -> str:
            words = explained(self._plan.graph, query.name, self.home, self._changes.cells)
            return words + self._measuring.cells_in_words(query.name)

        def complete_from() -> int | None:
            return complete_from_of(query.name, self._plan.graph, self.dispatcher.units.values())

        def state() -> list[StoredSlice]:
            self.checkpoint()
            return [held for held in slices_of(self.home) if query.name in held.wanted]

        def values() -> list[dict[str, Any]]:
            self.checkpoint()
            return model_values_of(self.home, query.name)

        log, counted = self.home.logs[query.name], self._measuring.begin(query)

        def metrics() -> QueryMetrics:
            return self._measuring.now(counted, self._plan.graph)

        return Query(query.name, query.schema, log, stop, explain, complete_from, state, values, metrics)
