"""Metrics of queries, streams and subtasks, collected from the reports of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from slicemill.catalog.catalog import AGAIN, QueryDefinition
from slicemill.metrics.quality_of_service import BUCKET_S, MetricsRecord
from slicemill.metrics.query_metrics import MemoryUse, MillMetrics, QueryMetrics
from slicemill.metrics.run_record import RunRecord
from slicemill.operators.graph import QueryGraph
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.tasks import RunningTask
from slicemill.shedding.accuracy import merge_reports
from slicemill.time import SECOND_US


class RunMetrics:
    """Metrics of all queries. The metrics of a query start at its creation."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._record = MetricsRecord(BUCKET_S)
        self._queries: dict[str, QueryMetrics] = {}

    def begin(self, query: QueryDefinition) -> QueryMetrics:
        """Create the metrics of a new query."""
        counted = QueryMetrics(
            query=query.name,
            since_s=self._clock() / SECOND_US,
            weight=query.options.weight,
            slo=query.options.slo,
        )
        self._queries[query.name] = counted
        return counted

    def add(self, log: str, run: RunRecord, *, readable: bool) -> None:
        """Add a run of a task to the metrics of a query. `readable` is True if it wrote readable results."""
        metrics = self._queries[log]
        metrics.cpu_s += run.cpu_s
        metrics.python_s += run.python_s
        metrics.collecting_s += run.collecting_s
        if readable:
            arrivals, now_s = run.arrivals.get(log, ()), run.committed_us / SECOND_US
            warm_s = run.warm_us / SECOND_US
            metrics.add(run.written[log], arrivals, now_s, run.ideal[log], self._record, warm_s)

    def now(self, metrics: QueryMetrics, graph: QueryGraph) -> QueryMetrics:
        """Update and return the metrics of a query."""
        metrics.seen_s = self._clock() / SECOND_US
        running, chooser = self._dispatcher.running, self._dispatcher.chooser
        metrics.policy = (running.policy_within(chooser.components, metrics.query) or chooser.policy).name
        task = running.writers.get(metrics.query)
        if task is not None:
            metrics.memory = MemoryUse(*running.rows_waiting(task.id), task.state_bytes)
            behind = graph.ancestors(metrics.query) if task.sheds else frozenset()
            found = [shed for node, shed in task.sheds.items() if node in behind]
            metrics.shed = merge_reports(found) if found else None
        return metrics

    def of_mill(self, queries: Iterable[QueryMetrics]) -> MillMetrics:
        """Return the metrics of the given queries, of all streams and of all subtasks."""
        dispatcher, found = self._dispatcher, list(queries)
        running = dispatcher.running
        for metrics in found:
            task = running.writers.get(metrics.query)
            if task is not None:
                waiting = running.waiting.by_bucket(running.position[task.id])
                metrics.note_waiting(waiting, self._record)
        streams = {
            name: asdict(stream.counts) for name, stream in dispatcher.streams.items() if AGAIN not in name
        }
        failing = {name: s.error for name, s in dispatcher.streams.items() if s.error is not None}
        policy = dispatcher.chooser.policy.name
        subtasks = [subtask for task in running.tasks for subtask in self._subtasks(task)]
        return MillMetrics(
            policy=policy,
            decisions=dispatcher.decisions,
            queries=found,
            record=self._record,
            streams=streams,
            failing=failing,
            subtasks=subtasks,
        )

    def describe_subtasks(self, query: str) -> str:
        """Describe the work of each subtask of a query's task."""
        task = self._dispatcher.running.writers.get(query)
        lines = [
            f"subtask {subtask['subtask']} on worker {subtask['worker']}: {subtask['runs']:,} runs, "
            f"{subtask['rows']:,} rows, {subtask['pairs']:,} pairs compared, {subtask['cpu_s']:.3g} s, "
            f"{subtask['bytes_read']:,} bytes read, "
            f"{subtask['state_bytes']:,} bytes kept"
            for subtask in (self._subtasks(task) if task is not None else ())
        ]
        return "".join(f"\n{line}" for line in lines)

    def _subtasks(self, task: RunningTask) -> Iterable[dict[str, Any]]:
        for subtask, statistics in sorted(task.statistics.subtasks.items()):
            yield {
                "task": task.id,
                "subtask": subtask,
                "worker": self._dispatcher.worker_of(task, subtask),
                **statistics.plain(),
            }
