"""Mill: continuous queries on Spark, from a script or from Python.

with Mill(home="work") as mill:
    mill.execute(open("examples/auction.esl").read())
    mill.start()
    hot = mill.queries["hot_items"]
    ...
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from slicemill.connectors.sinks.registry import open_sink
from slicemill.connectors.sinks.runner import SinkRunner
from slicemill.connectors.spark.frame import table_frame
from slicemill.engine.board import Goal
from slicemill.engine.dispatcher import Dispatcher
from slicemill.engine.program import UnitPlan, warm_up
from slicemill.engine.query import Query
from slicemill.engine.rows import plain_rows
from slicemill.engine.session import configure, local_session
from slicemill.engine.state_view import HeldSlice, slices_of
from slicemill.engine.steps import END
from slicemill.engine.task import TaskResult
from slicemill.engine.unit_run import RunningUnit, open_outputs
from slicemill.errors import SlicemillError
from slicemill.esl import Source, bind
from slicemill.esl.catalog import Catalog, Dropped, Setting, Statement, Stream, Table
from slicemill.esl.catalog import Query as QueryDefinition
from slicemill.esl.relation import RelationQuery
from slicemill.execution.operator import Row
from slicemill.execution.relation_query import evaluate_relation
from slicemill.execution.translate import relation_rows
from slicemill.ingest.intake import Intake
from slicemill.ingest.needs import Need, need_of
from slicemill.ingest.reader import Reader
from slicemill.metrics.query_metrics import Memory, MillMetrics, QueryMetrics
from slicemill.metrics.waiting import BUCKET_S
from slicemill.plan.explain import explain_text
from slicemill.plan.graph import QueryGraph
from slicemill.plan.history import history_us
from slicemill.plan.members import kept_nodes
from slicemill.plan.operators import Source as SourceOperator
from slicemill.plan.partitions import cell_count
from slicemill.plan.planner import Plan, Planner
from slicemill.plan.units import Unit
from slicemill.scheduling.dispatch import Chooser, policy_named
from slicemill.scheduling.metrics import Record
from slicemill.storage.cursors import Retention
from slicemill.storage.gc import collect
from slicemill.storage.home import Home
from slicemill.storage.recovery import recover

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RUNS_BETWEEN_COLLECTIONS = 50
_US = 1_000_000


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class Mill:
    """`home` keeps logs and state: a mill that is started again with the same home goes on where it was.

    `folder` is where relative paths of sources begin, `buckets` how many ways keyed work is split, `keep_s`
    how long results can be read after all who follow them have them, `policy` which query runs next where
    several could (docs/scheduling.md).
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        home: str | Path | None = None,
        *,
        folder: str | Path = ".",
        policy: str = "fcfs",
        buckets: int | None = None,
        poll_ms: int = 50,
        keep_s: float = 3600,
        clock: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._owns_session = spark is None
        self._temporary = tempfile.TemporaryDirectory(prefix="slicemill-") if home is None else None
        chooser = Chooser(policy_named(policy))
        self.home = Home(Path(self._temporary.name if self._temporary else home or "").resolve())
        self.home.lock()
        recover(self.home)
        self.spark = spark if spark is not None else local_session()
        configure(self.spark)
        self.catalog = Catalog()
        self.queries: dict[str, Query] = {}
        self.intakes: dict[str, Intake] = {}
        self._folder = Path(folder)
        self._buckets = buckets or self.spark.sparkContext.defaultParallelism
        self._poll_ms = poll_ms
        self._keep = Retention(age_us=int(keep_s * 1_000_000))
        self._clock = clock
        self._tables: dict[str, Sequence[Row]] = {}
        self._opened = False
        self._started = False
        self._planner = Planner()
        self._plan = Plan(QueryGraph({}), ())
        self._runs = 0
        self._metrics: dict[str, QueryMetrics] = {}
        self._record = Record(BUCKET_S)
        self.dispatcher = Dispatcher(
            self.spark.sparkContext,
            self.home.logs,
            self._complete,
            clock,
            chooser,
            self._after_run,
            poll_ms / 1000,
        )
        self.sinks = SinkRunner(self.home)
        self._reader = Reader(self.spark, self.home.sources, self._folder, clock, self.dispatcher.notify)

    # -- declaring -------------------------------------------------------------------------------------

    def execute(self, esl: str | Source) -> list[Statement]:
        """Run the statements of a script; with a mistake in it, none of them."""
        bound = bind(esl, self.catalog)
        statements = [statement for statement, _ in bound.statements]
        if all(isinstance(statement, Setting) for statement in statements):
            self.catalog = bound.catalog  # nothing else changes, so nobody has to wait for a run to end
        else:
            self._adopt(bound.catalog)
        for statement in statements:
            if isinstance(statement, Dropped) and statement.name not in bound.catalog.queries:
                self._forget(statement)
            if isinstance(statement, Setting):
                self.policy = statement.value
        return statements

    def query(self, esl: str) -> Query:
        """Register one query, `SELECT …` or `CREATE QUERY …`, and return its handle."""
        queries = [statement for statement in self.execute(esl) if isinstance(statement, QueryDefinition)]
        if len(queries) != 1:
            raise SlicemillError("give one SELECT, or one CREATE QUERY")
        return self.queries[queries[0].name]

    def ask(self, name: str) -> list[Row]:
        """The rows of an ad hoc query, one that reads tables and views over tables only, as they are now."""
        query = self.catalog.queries[name.lower()].query
        if not isinstance(query, RelationQuery):
            raise SlicemillError(f"{name} is a continuous query; its results are in mill.queries[{name!r}]")
        return evaluate_relation(query, self.catalog, lambda t: relation_rows(t, self.catalog, self._tables))

    def table(self, name: str, rows: Sequence[Row]) -> None:
        """Give the rows of a table before it is declared, in place of its source."""
        self._tables[name] = rows

    def stream(self, name: str, frame: DataFrame, time: str | None = None, skew: str = "") -> None:
        """Declare a stream that a streaming DataFrame feeds; `time` names its timestamp column."""
        columns = ", ".join(f'"{field.name}" {field.dataType.simpleString()}' for field in frame.schema)
        order = f' ORDER BY "{time}"' if time is not None else ""
        self._reader.frames[name.lower()] = frame
        self.execute(f'CREATE STREAM "{name}" ({columns}){order}{f" SKEW {skew}" if skew else ""}')

    @property
    def policy(self) -> str:
        """The policy by which units are picked, `hnr` for instance. Changing it loses and changes nothing."""
        return self.dispatcher.chooser.policy.name

    @policy.setter
    def policy(self, name: str) -> None:
        self.dispatcher.chooser.policy = policy_named(name)

    def metrics(self) -> MillMetrics:
        """How all queries are doing; `plain()` of it is for JSON."""
        board, queries = self.dispatcher.board, [query.metrics() for query in self.queries.values()]
        for metrics in queries:
            unit = board.writers.get(metrics.query)
            if unit is not None:
                metrics.note_waiting(board.waiting.by_bucket(board.position[unit.id]), self._record)
        return MillMetrics(self.policy, self.dispatcher.decisions, queries, self._record)

    # -- running ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take up the units where they were, once all is registered that belongs to them.

        A unit that went on from its state with some of its queries would pass by the input of the others.
        """
        with self.dispatcher.paused():
            if not self._opened:
                self._run_units(self._plan, self.catalog)
                self._opened = True

    def start(self) -> None:
        """Read the sources and run the queries until `stop`, `drain` or `close`."""
        self.open()
        self._started = True
        self._reader.start(self.intakes, self._needs(), self._poll_ms)
        self.dispatcher.start()
        self.sinks.start()

    def stop(self) -> None:
        """Stop reading and running; what is committed stays, and `start` goes on from there."""
        self._reader.stop()
        self.dispatcher.stop()
        self.sinks.stop()
        self._started = False

    def check(self) -> None:
        """Raise if reading or running has stopped by itself."""
        self.dispatcher.check()
        failure = self._reader.failure()
        if failure is not None:
            raise SlicemillError(f"reading the sources stopped: {failure}")

    def drain(self) -> None:
        """Read all that the sources hold now, end the streams, and run until every result is there."""
        self.stop()
        self.open()
        self._reader.read_to_the_end(self.intakes, self._needs())
        for intake in self.intakes.values():
            intake.end()
        self.dispatcher.run_all()
        self.sinks.deliver_new()

    def close(self) -> None:
        """Stop, and end the Spark session if this mill has made it."""
        self.stop()
        for unit in self.dispatcher.units.values():
            unit.release()
        self.sinks.close()
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

    def _adopt(self, catalog: Catalog) -> None:
        """Make a new catalog's graph the one that runs."""
        plan = self._planner.plan(catalog)
        graph = plan.graph
        # Before anything is registered: a sink that cannot be must not leave half a query behind.
        sinks = {
            query.name: open_sink(query.options.sink, query.name, query.schema, folder=self._folder)
            for query in catalog.queries.values()
            if query.continuous and query.options.sink is not None and query.name not in self.sinks
        }
        for relation in catalog.relations.values():
            if isinstance(relation, Table) and relation.name not in self._tables:
                arrow = table_frame(self.spark, relation, self._folder).toArrow()
                self._tables[relation.name] = plain_rows(arrow, relation.schema)
        for stream in self._streams_to_read(graph, catalog):
            if stream.name not in self.intakes:
                self.intakes[stream.name] = Intake(stream, self.home, self._clock)
        if self._started:
            # A new query starts with what arrives from now on: nothing it wants may be left out any more.
            self._reader.stop_outdated(self._needs(graph))
        with self.dispatcher.paused():
            if self._opened:
                self._run_units(plan, catalog)
            for query in catalog.queries.values():
                if not isinstance(query.query, RelationQuery) and query.name not in self.queries:
                    self.queries[query.name] = self._handle(query)
            for name, sink in sinks.items():
                self.sinks.add(name, sink)
            self.catalog, self._plan = catalog, plan
        if self._started:
            self._reader.start(self.intakes, self._needs(), self._poll_ms)

    def _streams_to_read(self, graph: QueryGraph, catalog: Catalog) -> list[Stream]:
        """The streams that queries read, and those that were read in this home before and are declared."""
        read = {op.stream for node in graph.sources if isinstance(op := node.operator, SourceOperator)}
        known = {name for name in self._reader.streams() if isinstance(catalog.relation(name), Stream)}
        streams = [catalog.declared_stream(name) for name in sorted(read | known)]
        for stream in streams:
            intake = self.intakes.get(stream.name)
            if intake is not None and intake.stream != stream:
                raise SlicemillError(
                    f"{stream.name} was read under another declaration; give the new stream a new name"
                )
        return streams

    def _run_units(self, plan: Plan, catalog: Catalog) -> None:
        units = [self._running_unit(unit) for unit in self._plans(plan, catalog)]
        running = {unit.id: unit for unit in units}
        for known in self.dispatcher.units.values():
            if known not in units:
                known.release()
            if known.id not in running:
                # Its queries are gone, and the logs that its last version names go with them.
                self.home.forget_unit(known.id)
        queries = [query for query in catalog.queries.values() if query.continuous]
        self.dispatcher.replace(units, {query.name: _goal(query) for query in queries})

    def _plans(self, plan: Plan, catalog: Catalog) -> list[UnitPlan]:
        # A plan travels to every worker: it must not grow with queries that others run.
        catalog = catalog.without_queries()
        return [
            UnitPlan(
                unit,
                plan.graph.only(_needed(unit.outputs, plan.graph)),
                catalog,
                self._tables,
                self._split(unit, plan.graph),
            )
            for unit in plan.units
        ]

    def _split(self, unit: Unit, graph: QueryGraph) -> int:
        return cell_count(unit, graph, self._buckets)

    def _running_unit(self, plan: UnitPlan) -> RunningUnit:
        """The unit of a plan: as it runs already, changed, or new and starting from now."""
        open_outputs(plan, self.home)
        known = self.dispatcher.board.unit(plan.unit.id)
        if known is not None:
            if (known.plan.unit, known.plan.graph) == (plan.unit, plan.graph):
                return known
            # Queries that come and go change a unit between two runs: what is there is finished first.
            self.dispatcher.catch_up(known)
            known.settle()
            if plan.unit.stateful and not kept_nodes(known.plan.unit.stateful_nodes, plan.unit):
                self.home.forget_unit(plan.unit.id)
        warm_up(plan)
        start_at = {log: self.home.logs[log].head for log in plan.unit.inputs}
        unit = RunningUnit(plan, self.home, start_at)
        for log, ts in unit.told().items():
            if log in self.intakes:
                self.intakes[log].promise_at_least(ts)
        return unit

    def _forget(self, dropped: Dropped) -> None:
        """A query's results stay with its handle; its log and state go, so that its name is free."""
        query = self.queries.pop(dropped.name, None)
        if query is not None:
            query.detach()
            self.sinks.forget(dropped.name)
            self.home.forget_unit(dropped.name)
            self.home.forget_log(dropped.name)

    def _complete(self, log: str) -> int:
        """How far a log is complete: a stream by its intake, a result by the unit that writes it."""
        if log in self.intakes:
            return self.intakes[log].complete()
        writer = self.dispatcher.board.writers.get(log)
        if writer is not None:
            return writer.complete(log)
        # A late or error stream: only its rows move it, until its owner has ended.
        if self.intakes[self.catalog.declared_stream(log).name].complete() == END:
            return END
        frontier = self.home.logs[log].frontier
        return -END if frontier is None else frontier

    def _needs(self, graph: QueryGraph | None = None) -> dict[str, Need]:
        return {name: need_of(name, graph or self._plan.graph) for name in self.intakes}

    def _after_run(self, unit: RunningUnit, results: list[TaskResult]) -> None:
        now = self._clock()
        for _, log in unit.plan.unit.outputs:
            query = self.queries.get(log)
            if query is None:
                continue
            query.error = unit.failed.get(log)
            rows = sum(result.chunks[log].rows for result in results if log in result.chunks)
            if rows and query.error is None:
                arrivals = tuple(pair for result in results for pair in result.arrivals.get(log, ()))
                ideal = self.dispatcher.board.ideal_time(log)
                self._metrics[log].add(rows, arrivals, now / _US, ideal, self._record)
                query.delivered()
        self.sinks.notify()
        self._runs += 1
        if self._runs % _RUNS_BETWEEN_COLLECTIONS == 0:
            self.collect()

    def collect(self) -> dict[str, int]:
        """Free what every unit has read and nobody will ask for again; bytes freed by log."""
        if not self._opened:
            return {}  # who reads what is not known yet
        units = [unit.version.cursors for unit in self.dispatcher.units.values()]
        cursors = [*units, *self.sinks.cursors()]
        kept = dict.fromkeys(self.queries, self._keep)
        return collect(self.home.logs, cursors, self._clock(), kept)

    def lag_rows(self, query: str) -> int:
        """Rows that wait in the logs of the unit that a query belongs to."""
        unit = self.dispatcher.board.writers.get(query)
        return sum(epoch.rows for epoch in unit.pending()) if unit is not None else 0

    def _metrics_of(self, metrics: QueryMetrics) -> QueryMetrics:
        metrics.seen_s = self._clock() / _US
        board = self.dispatcher.board
        unit = board.writers.get(metrics.query)
        if unit is not None:
            state = sum(part.chunk.bytes for part in unit.version.slices)
            metrics.memory = Memory(*board.rows_waiting(unit.id), state)
            behind = self._plan.graph.ancestors(metrics.query)
            metrics.shed = next((shed for node, shed in unit.sheds.items() if node in behind), None)
        return metrics

    def _handle(self, query: QueryDefinition) -> Query:
        def stop() -> None:
            self.execute(f'DROP QUERY "{query.name}"')

        def explain() -> str:
            return explain_text(self._plan.graph.only(self._plan.graph.ancestors(query.name)))

        def complete_from() -> int | None:
            return self._complete_from(query.name)

        def state() -> list[HeldSlice]:
            return [held for held in slices_of(self.home.folder) if query.name in held.wanted]

        counted = QueryMetrics(query.name, self._clock() / _US, query.options.weight, query.options.slo)
        self._metrics[query.name] = counted

        def metrics() -> QueryMetrics:
            return self._metrics_of(counted)

        log = self.home.log(query.name, query.schema)
        return Query(query.name, query.schema, log, stop, explain, complete_from, state, metrics)

    def _complete_from(self, query: str) -> int | None:
        history = history_us(self._plan.graph, query)
        units = [unit for unit in self.dispatcher.units.values() if query in unit.since]
        if not units or history is None:
            return None
        since = units[0].since[query]
        return -END if since is None else since + history


def _goal(query: QueryDefinition) -> Goal:
    slo = query.options.slo
    return Goal(query.options.weight, math.inf if slo is None else slo.bound_s)


def _needed(outputs: Sequence[tuple[str, str]], graph: QueryGraph) -> frozenset[str]:
    """A unit's part of the graph: it stays the same while other queries come and go."""
    return frozenset(node_id for root, _ in outputs for node_id in graph.ancestors(root))
