"""`/metrics`: metrics of the engine in the Prometheus text format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import psutil
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicemill.api.mill import Mill
from slicemill.lifecycle.query import Query
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.server.live_results import LiveCounts
from slicemill.time import END, SECOND_US, wall_clock_us

_QUANTILES = (0.5, 0.99)
# Name, help text, and value of each metric of a query. Names of counters end in _total.
_OF_QUERIES: tuple[tuple[str, str, Callable[[QueryMetrics], float | None]], ...] = (
    ("slicemill_query_rows_total", "Number of rows that the query has emitted.", lambda q: q.rows),
    (
        "slicemill_query_slowdown",
        "Mean ratio of response time to the response time without other load.",
        lambda q: q.figures.slowdown.mean,
    ),
    (
        "slicemill_query_staleness_ratio",
        "Share of time in which at least one due result was missing.",
        lambda q: q.staleness,
    ),
    (
        "slicemill_query_tardiness_seconds",
        "Mean time by which results exceed the service level.",
        lambda q: q.figures.tardiness.mean,
    ),
    (
        "slicemill_query_rows_waiting",
        "Number of pending input rows of the query's task.",
        lambda q: q.memory.rows,
    ),
    (
        "slicemill_query_state_bytes",
        "State size of the query's task in bytes.",
        lambda q: q.memory.state_bytes,
    ),
    (
        "slicemill_query_task_cpu_seconds_total",
        "CPU time of the query's task, which other queries may share.",
        lambda q: q.cpu_s,
    ),
    (
        "slicemill_query_shed_rows_total",
        "Number of input rows that load shedding has dropped.",
        lambda q: q.shed.dropped if q.shed else None,
    ),
    (
        "slicemill_query_accuracy_ratio",
        "Estimated accuracy of the query's results under load shedding (1 = exact).",
        lambda q: q.shed.accuracy if q.shed else None,
    ),
    (
        "slicemill_query_level_met",
        "1 if the query meets its service level, else 0.",
        lambda q: None if q.met is None else float(q.met),
    ),
)
_OF_STREAMS = (
    ("slicemill_stream_rows_total", "Number of rows that were read from the source.", "read"),
    ("slicemill_stream_late_rows_total", "Number of late rows (older than the watermark).", "late"),
    ("slicemill_stream_unreadable_rows_total", "Number of bad rows (that could not be parsed).", "bad"),
)


def prometheus_text(mill: Mill, names: Iterable[str], live: LiveCounts) -> bytes:
    """Return the metrics of the engine, of some queries and of live clients."""
    registry = CollectorRegistry()
    queries = [mill.queries[name] for name in names if name in mill.queries]
    registry.register(MillCollector(mill, queries, live))
    return generate_latest(registry)


class MillCollector(Collector):
    """Prometheus collector that reads the engine's metrics on each scrape."""

    def __init__(self, mill: Mill, queries: list[Query], live: LiveCounts) -> None:
        self._mill = mill
        self._live = live
        self._queries = queries

    def collect(self) -> Iterator[Metric]:
        figures = {query.name: query.measured() for query in self._queries}
        for name, help_text, value_of in _OF_QUERIES:
            family = _family(name, help_text, ["query"])
            for query, metrics in figures.items():
                _add(family, [query], value_of(metrics))
            yield family
        yield self._responses(figures)
        yield self._shares(figures)
        failed = GaugeMetricFamily(
            "slicemill_query_failed", "1 if the query has failed and stopped, else 0.", labels=["query"]
        )
        for handle in self._queries:
            failed.add_metric([handle.name], float(handle.error is not None))
        yield failed
        yield from self._backfills()
        yield from self._followers()
        yield from self._streams()
        yield from self._mill_itself()

    def _backfills(self) -> Iterator[Metric]:
        share = GaugeMetricFamily(
            "slicemill_query_backfill_ratio",
            "Share of the past rows that a query with FROM BEGINNING has read.",
            labels=["query"],
        )
        left = GaugeMetricFamily(
            "slicemill_query_backfill_rows_left",
            "Number of past rows that the query still has to read.",
            labels=["query"],
        )
        for handle in self._queries:
            if (progress := handle.progress()) is not None:
                share.add_metric([handle.name], progress["share"])
                left.add_metric([handle.name], progress["rows_left"])
        yield from (share, left)

    def _responses(self, figures: dict[str, QueryMetrics]) -> Metric:
        """Return a summary of response times, because only summaries have quantiles."""
        name = "slicemill_query_response_seconds"
        family = Metric(name, "Time from the arrival of a row to its result.", "summary")
        for query, metrics in figures.items():
            for quantile in _QUANTILES:
                response_ms = metrics.response_ms(quantile)
                if response_ms is not None and not math.isnan(response_ms):
                    labels = {"query": query, "quantile": str(quantile)}
                    family.add_sample(name, labels, response_ms / 1000)
        return family

    def _shares(self, figures: dict[str, QueryMetrics]) -> Metric:
        """Return each query's even share of the CPU time of its task.

        The shares of all queries add up to the total CPU time.
        """
        family = CounterMetricFamily(
            "slicemill_query_cpu_share_seconds",
            "CPU time of the query's task, divided by the number of its queries.",
            labels=["query"],
        )
        writers = self._mill.dispatcher.running.writers
        for query, metrics in figures.items():
            task = writers.get(query)
            sharing = len(task.plan.task.outputs) if task is not None else 1
            family.add_metric([query], metrics.cpu_s / max(1, sharing))
        return family

    def _followers(self) -> Iterator[Metric]:
        live = self._live
        yield GaugeMetricFamily(
            "slicemill_live_clients", "Number of clients that follow live results.", value=live.followers
        )
        yield CounterMetricFamily(
            "slicemill_live_epochs_sent",
            "Number of result epochs (commits) sent to clients, counted for each client.",
            value=live.sent,
        )
        yield CounterMetricFamily(
            "slicemill_live_epochs_encoded",
            "Number of result epochs (commits) encoded, once for all clients with the same format.",
            value=live.encoded,
        )

    def _streams(self) -> Iterator[Metric]:
        streams = dict(self._mill.running.streams)
        for name, help_text, field in _OF_STREAMS:
            family = _family(name, help_text, ["stream"])
            for stream, running in streams.items():
                family.add_metric([stream], getattr(running.counts, field))
            yield family
        failing = GaugeMetricFamily(
            "slicemill_stream_failing", "1 if the source cannot be read, else 0.", labels=["stream"]
        )
        lag = GaugeMetricFamily(
            "slicemill_stream_watermark_lag_seconds",
            "Current time minus watermark of the stream.",
            labels=["stream"],
        )
        now = wall_clock_us()
        for stream, running in streams.items():
            failing.add_metric([stream], float(running.error is not None))
            watermark = self._mill.dispatcher.watermark(stream)
            _add(lag, [stream], (now - watermark) / SECOND_US if 0 < watermark < END else None)
        yield failing
        yield lag

    def _mill_itself(self) -> Iterator[Metric]:
        dispatcher = self._mill.dispatcher
        yield CounterMetricFamily(
            "slicemill_rounds", "Number of scheduling rounds of the driver.", value=dispatcher.rounds
        )
        yield GaugeMetricFamily(
            "slicemill_queries", "Number of continuous queries.", value=len(self._mill.queries)
        )
        yield GaugeMetricFamily(
            "slicemill_tasks",
            "Number of tasks (sets of operators scheduled together).",
            value=len(dispatcher.tasks),
        )
        process = psutil.Process()
        yield GaugeMetricFamily(
            "slicemill_driver_resident_bytes",
            "Resident memory of the driver process.",
            value=process.memory_info().rss,
        )
        subtasks = CounterMetricFamily(
            "slicemill_worker_cpu_seconds", "CPU time of task runs on the worker.", labels=["worker"]
        )
        spent: dict[str, float] = {}
        for subtask in self._mill.metrics()["subtasks"]:
            worker = str(subtask["worker"])
            spent[worker] = spent.get(worker, 0.0) + float(subtask["cpu_s"])
        for worker, cpu_s in sorted(spent.items()):
            subtasks.add_metric([worker], cpu_s)
        yield subtasks


def _family(name: str, help_text: str, labels: list[str]) -> CounterMetricFamily | GaugeMetricFamily:
    if name.endswith("_total"):
        return CounterMetricFamily(name.removesuffix("_total"), help_text, labels=labels)
    return GaugeMetricFamily(name, help_text, labels=labels)


def _add(family: CounterMetricFamily | GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    """Add a sample, unless its value is missing."""
    if value is not None and not math.isnan(value):
        family.add_metric(labels, value)
