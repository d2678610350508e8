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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from slicemill.errors import SlicemillError
from slicemill.esl import Source, bind
from slicemill.esl.catalog import Catalog, Statement, Stream, Table
from slicemill.esl.catalog import Query as QueryDefinition
from slicemill.esl.relation import RelationQuery
from slicemill.execution.operator import Row
from slicemill.plan.build import build_graph
from slicemill.plan.explain import explain_text
from slicemill.plan.graph import QueryGraph
from slicemill.plan.operators import Source as SourceOperator
from slicemill.plan.optimize import optimize
from slicemill.plan.units import cut
from slicemill.runtime.dispatcher import Dispatcher
from slicemill.runtime.home import Home
from slicemill.runtime.ingest import Need, source_frame, start_ingest
from slicemill.runtime.intake import Intake
from slicemill.runtime.needs import needed_rows
from slicemill.runtime.policies import make_policy
from slicemill.runtime.program import UnitPlan, bucket_count
from slicemill.runtime.query import Query
from slicemill.runtime.rows import plain_rows
from slicemill.runtime.session import local_session
from slicemill.runtime.source_frame import table_frame
from slicemill.runtime.steps import END
from slicemill.runtime.task import TaskResult
from slicemill.runtime.unit_run import RunningUnit, open_outputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class Mill:
    """`home` keeps logs and state: a mill that is started again with the same home goes on where it was.

    `folder` is where relative paths of sources begin; `buckets` how many ways keyed work is split.
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
        clock: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._owns_session = spark is None
        self.spark = spark if spark is not None else local_session()
        self._temporary = tempfile.TemporaryDirectory(prefix="slicemill-") if home is None else None
        self.home = Home(Path(self._temporary.name if self._temporary else home or "").resolve())
        self.catalog = Catalog()
        self.queries: dict[str, Query] = {}
        self._folder = Path(folder)
        self._buckets = buckets or self.spark.sparkContext.defaultParallelism
        self._poll_ms = poll_ms
        self._clock = clock
        self._frames: dict[str, DataFrame] = {}
        self._intakes: dict[str, Intake] = {}
        self._tables: dict[str, Sequence[Row]] = {}
        self._ingest: StreamingQuery | None = None
        self._needs: dict[str, Need] = {}
        self._started = False
        self._graph = QueryGraph({})
        self._dispatcher = Dispatcher(
            self.spark.sparkContext,
            self._complete,
            clock,
            make_policy(policy),
            self._after_run,
            poll_ms / 1000,
        )

    # -- declaring -------------------------------------------------------------------------------------

    def execute(self, esl: str | Source) -> list[Statement]:
        """Run the statements of a script; with a mistake in it, none of them."""
        bound = bind(esl, self.catalog)
        self._adopt(bound.catalog)
        return [statement for statement, _ in bound.statements]

    def query(self, esl: str) -> Query:
        """Register one query, `SELECT …` or `CREATE QUERY …`, and return its handle."""
        queries = [statement for statement in self.execute(esl) if isinstance(statement, QueryDefinition)]
        if len(queries) != 1:
            raise SlicemillError("give one SELECT, or one CREATE QUERY")
        return self.queries[queries[0].name]

    def stream(self, name: str, frame: DataFrame, time: str | None = None, skew: str = "") -> None:
        """Declare a stream that a streaming DataFrame feeds; `time` names its timestamp column."""
        columns = ", ".join(f'"{field.name}" {field.dataType.simpleString()}' for field in frame.schema)
        order = f' ORDER BY "{time}"' if time is not None else ""
        self._frames[name.lower()] = frame
        self.execute(f'CREATE STREAM "{name}" ({columns}){order}{f" SKEW {skew}" if skew else ""}')

    # -- running ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the sources and run the queries until `stop`, `drain` or `close`."""
        self._started = True
        self._start_ingest(self._poll_ms)
        self._dispatcher.start()

    def stop(self) -> None:
        """Stop reading and running; what is committed stays, and `start` goes on from there."""
        self._stop_ingest()
        self._dispatcher.stop()
        self._started = False

    def drain(self) -> None:
        """Read all that the sources hold now, end the streams, and run until every result is there."""
        self.stop()
        self._start_ingest(0)
        if self._ingest is not None:
            self._ingest.awaitTermination()
            self._ingest = None
        for intake in self._intakes.values():
            intake.end()
        self._dispatcher.run_all()

    def close(self) -> None:
        """Stop, and end the Spark session if this mill has made it."""
        self.stop()
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
        graph = optimize(build_graph(catalog))
        for relation in catalog.relations.values():
            if isinstance(relation, Table) and relation.name not in self._tables:
                arrow = table_frame(self.spark, relation, self._folder).toArrow()
                self._tables[relation.name] = plain_rows(arrow, relation.schema)
        for node in graph.sources:
            assert isinstance(node.operator, SourceOperator)
            self._open_intake(node.operator.stream, catalog)
        units = [self._running_unit(plan) for plan in self._plans(graph, catalog)]
        for query in catalog.queries.values():
            if not isinstance(query.query, RelationQuery) and query.name not in self.queries:
                self.queries[query.name] = self._handle(query)
        self.catalog, self._graph = catalog, graph
        self._dispatcher.replace(units)
        if self._started:
            self._start_ingest(self._poll_ms)

    def _plans(self, graph: QueryGraph, catalog: Catalog) -> list[UnitPlan]:
        return [
            UnitPlan(unit, graph, catalog, self._tables, bucket_count(unit, graph, self._buckets))
            for unit in cut(graph)
        ]

    def _running_unit(self, plan: UnitPlan) -> RunningUnit:
        open_outputs(plan, self.home)
        known = self._dispatcher.units.get(plan.unit.id)
        if known is not None and known.plan == plan:
            return known
        start_at = {log: self.home.logs[log].head for log in plan.unit.inputs}
        unit = RunningUnit(plan, self.home, start_at)
        for log, ts in unit.told().items():
            if log in self._intakes:
                self._intakes[log].promise_at_least(ts)
        return unit

    def _open_intake(self, name: str, catalog: Catalog) -> None:
        """A stream's log, and for a late or error stream that of its owner."""
        owner = next(
            (
                relation
                for relation in catalog.relations.values()
                if isinstance(relation, Stream)
                and name.lower().startswith(relation.name.lower())
                and name[len(relation.name) :] in ("", "_late", "_errors")
            ),
            None,
        )
        assert owner is not None
        if owner.name not in self._intakes:
            self._intakes[owner.name] = Intake(owner, self.home, self._clock)

    def _complete(self, log: str) -> int:
        """How far a log is complete: a stream by its intake, a result by the unit that writes it."""
        if log in self._intakes:
            return self._intakes[log].complete()
        for unit in self._dispatcher.units.values():
            if any(log == output for _, output in unit.plan.unit.outputs):
                return unit.complete(log)
        owner = self._intakes.get(log.removesuffix("_late")) or self._intakes.get(log.removesuffix("_errors"))
        if owner is not None and owner.complete() == END:
            return END
        frontier = self.home.logs[log].frontier
        return -END if frontier is None else frontier

    def _start_ingest(self, poll_ms: int) -> None:
        needs = {name: Need(needed_rows(name, self._graph)) for name in self._intakes}
        if self._ingest is not None and poll_ms and needs == self._needs:
            return
        self._stop_ingest()
        frames = {
            name: self._frame(intake.stream, needs[name])
            for name, intake in self._intakes.items()
            if self._is_read(intake.stream)
        }
        self._needs = needs
        if frames:
            self._ingest = start_ingest(
                frames, self._intakes, self.home.sources / "checkpoint", poll_ms, self._dispatcher.notify
            )

    def _is_read(self, stream: Stream) -> bool:
        return (
            stream.name.lower() in self._frames
            or stream.source.url is not None
            or stream.source.format is not None
        )

    def _frame(self, stream: Stream, need: Need) -> DataFrame:
        return source_frame(
            self.spark, stream, need, self.home.sources, self._folder, self._frames.get(stream.name.lower())
        )

    def _stop_ingest(self) -> None:
        if self._ingest is not None:
            self._ingest.stop()
            self._ingest = None

    def _after_run(self, unit: RunningUnit, results: list[TaskResult]) -> None:
        now = self._clock()
        for _, log in unit.plan.unit.outputs:
            query = self.queries.get(log)
            if query is None:
                continue
            query.error = unit.failed.get(log)
            arrivals = [now - arrival for result in results for arrival in result.arrivals.get(log, ())]
            if any(log in result.chunks for result in results):
                query.deliver(self.home.logs[log].read(self.home.logs[log].head), arrivals)

    def _handle(self, query: QueryDefinition) -> Query:
        def stop() -> None:
            self.execute(f'DROP QUERY "{query.name}"')

        def explain() -> str:
            return explain_text(self._graph.only(self._graph.ancestors(query.name)))

        return Query(query.name, query.schema, self.home.log(query.name, query.schema), stop, explain)

    def tables(self) -> Mapping[str, Sequence[Row]]:
        return self._tables
