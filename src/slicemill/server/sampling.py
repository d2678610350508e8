"""Periodic samples of the engine's metrics, taken by one thread, with a history.

All clients read the same samples. Sampling takes CPU time away from queries. So a sample is taken every
second while a client watches and every five seconds otherwise. Sampling uses at most 1/50 of the time.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from slicemill.api.mill import Mill
from slicemill.api.status import problems
from slicemill.catalog.queries import ServiceLevel
from slicemill.lifecycle.query import Query
from slicemill.metrics.profiling import process_gc_seconds, watch_gc
from slicemill.metrics.quality_of_service import Quantiles, Summary
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.operators.specs import Source
from slicemill.runtime.tasks import RunningTask
from slicemill.server.diagnosis import QuerySituation, Severity, SlownessCause, cause_of
from slicemill.server.listings import state_of
from slicemill.server.metrics_history import (
    EVERY_S,
    QUERY_FIGURES,
    MetricRing,
    MetricsHistory,
    read_history,
    write_history,
)
from slicemill.time import BEGINNING, END, SECOND_US, wall_clock_us

_LOGGER = logging.getLogger("slicemill")
_WATCHED_EVERY_S = 1.0
_WATCHED_FOR_S = 10.0
_SHARE = 50  # divisor of the time that may be spent on sampling: at most 1/50
_RATE_OVER = 5  # number of samples over which a rate is computed
_EVENTS = 200
_STOPPED = ("failed", "restarting")
_WRITTEN_EVERY_S = 60.0
_WRITING_SHARE = 500  # divisor of the time that may be spent on writing the history: at most 1/500


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSample:
    """Metrics of a stream at one time; `watermark_us` is None before the first row and after the end."""

    name: str
    rate: float
    read: int
    unneeded: int
    late: int
    bad: int
    error: str | None
    watermark_us: int | None
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySample:
    """Metrics of a query at one time.

    `cpu` is the query's share of the cores that its task uses. `shared_by` is the number of queries in the
    task. `lag_s` is the distance between the newest watermark of its streams and its own watermark, in event
    time. `budget` describes the rows that load shedding may drop.
    """

    name: str
    state: str
    task: str
    shared_by: int
    rows: int
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    slowdown: float | None
    staleness: float | None
    rows_waiting: int
    state_bytes: int
    cpu: float
    task_cpu: float
    level: str | None
    level_met: bool | None
    lag_s: float | None
    budget: str | None
    shed: int | None
    shed_share: float | None
    accuracy: float | None
    watermark_us: int | None
    policy: str
    cause: SlownessCause | None

    @property
    def attention(self) -> Severity:
        return Severity.NONE if self.cause is None else self.cause.attention


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSample:
    """Metrics of a task at one time: cores in use, rates of its operators, and pending rows."""

    id: str
    cpu: float
    rows_waiting: int
    longest_wait_s: float
    state_bytes: int
    subtasks: int
    queries: tuple[str, ...]
    node_rates: Mapping[str, float]
    input_rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WorkerSample:
    worker: int
    subtasks: int
    cpu: float
    state_bytes: int


@dataclass(frozen=True, slots=True)
class MillEvent:
    """Event of the engine: time, name of the query or stream, kind and text."""

    at_s: float
    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MillSample:
    at_s: float
    policy: str
    problems: tuple[str, ...]
    streams: dict[str, StreamSample]
    queries: dict[str, QuerySample]
    tasks: dict[str, TaskSample]
    workers: tuple[WorkerSample, ...]


@dataclass(slots=True)
class _CounterSnapshot:
    """Cumulative counters at one time. Rates are computed from differences of counters."""

    at: float
    counts: dict[str, float] = field(default_factory=dict)


class Sampler:
    """Periodic sampler of the engine's metrics. `look` returns the newest sample."""

    def __init__(
        self,
        mill: Mill,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = wall_clock_us,
        history: Path | None = None,
    ) -> None:
        """Create a sampler without starting its thread.

        With a `history`, metrics are stored in that file across restarts.
        """
        watch_gc()
        self._mill = mill
        self._clock = clock
        self._wall_us = wall_us
        self._latest: MillSample | None = None
        self._file = history
        kept = read_history(history) if history is not None else MetricsHistory()
        self._rings = kept.queries
        self._mill_ring = kept.mill
        self._policies = kept.policies
        self.events: deque[MillEvent] = deque((MillEvent(**event) for event in kept.events), maxlen=_EVENTS)
        self._written_s = clock()
        self._writing_s = 0.0
        self._totals: deque[_CounterSnapshot] = deque(maxlen=_RATE_OVER)
        self._responses: dict[str, tuple[dict[int, int], Summary, float, float]] = {}
        self._levels = RecentLevels()
        self._overall: tuple[Summary, Summary] = (Summary(), Summary())
        self._kept_s = -math.inf
        self._watched_s = -math.inf
        self._taking = threading.Lock()
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._loop, name="sampling", daemon=True)

    # -- Calls of clients -----------------------------------------------------------------------------

    def look(self) -> MillSample:
        """Return the newest sample, which includes all current queries.

        For some seconds after the call, a client counts as watching and samples are taken more often.
        """
        was_idle = self._clock() - self._watched_s > _WATCHED_FOR_S
        self._watched_s = self._clock()
        if was_idle:
            self._wake.set()
        latest = self._latest
        if latest is None or latest.queries.keys() != self._mill.queries.keys():
            return self.take()
        return latest

    def history_of(self, query: str) -> dict[str, list[float | None]]:
        return self._rings.get(query, MetricRing(QUERY_FIGURES)).columns()

    def mill_history(self) -> tuple[dict[str, list[float | None]], list[tuple[float, str]]]:
        """Return the metrics of all queries together, and the scheduling policies with their start times."""
        return self._mill_ring.columns(), list(self._policies)

    # -- The sampling thread ---------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self.write()

    def _loop(self) -> None:
        while not self._stop:
            began = time.thread_time()
            try:
                self.take()
                if self._clock() - self._written_s > max(_WRITTEN_EVERY_S, _WRITING_SHARE * self._writing_s):
                    self.write()
            except Exception:  # the plan has changed during the sample; the next sample reads the new plan
                _LOGGER.debug("a sample was not taken", exc_info=True)
            spent = time.thread_time() - began
            watched = self._clock() - self._watched_s < _WATCHED_FOR_S
            self._wake.wait(max(_WATCHED_EVERY_S if watched else EVERY_S, _SHARE * spent))
            self._wake.clear()

    def write(self) -> None:
        """Write the history to its file, if there is one."""
        if self._file is None:
            return
        began = time.thread_time()
        events = [asdict(event) for event in list(self.events)]
        kept = MetricsHistory(dict(self._rings), self._mill_ring, self._policies[-_EVENTS:], events)
        try:
            write_history(self._file, kept)
        except OSError as problem:
            _LOGGER.warning("the history of charts cannot be written: %s", problem)
        self._written_s, self._writing_s = self._clock(), time.thread_time() - began

    def take(self) -> MillSample:
        """Take a sample now, in the calling thread."""
        with self._taking:
            return self._take()

    def _take(self) -> MillSample:
        mill, now_us = self._mill, self._wall_us()
        totals = _CounterSnapshot(self._clock())
        keep = totals.at - self._kept_s >= EVERY_S - 0.1
        self._totals.append(totals)
        streams = {name: self._stream(name, totals) for name in list(mill.running.streams)}
        tasks = {task.id: self._task(task, totals) for task in list(mill.dispatcher.running.tasks)}
        sinks = {status.query: status.error for status in mill.sinks.status() if status.error is not None}
        sinks |= mill.tables.writer.errors()
        sources = self._sources()
        cores = {task.id: task.cpu for task in tasks.values()}
        collecting = self._rate("collecting", process_gc_seconds(), totals)
        queries = {}
        for name, query in list(mill.queries.items()):
            running = mill.dispatcher.running.writers.get(name)
            task = tasks.get(running.id) if running is not None else None
            metrics = query.measured()
            read = [streams[stream] for stream in sources.get(name, ()) if stream in streams]
            level_s = self._levels.measured_s(name, metrics, totals.at)
            situation = replace(
                self._situation(query, metrics, task, read, cores, sinks.get(name)),
                level_met=None if metrics.slo is None or level_s is None else level_s < metrics.slo.bound_s,
                level_measured_s=level_s,
                collecting=self._gc_share(name, metrics, task, totals),
                server_collecting=collecting,
            )
            queries[name] = self._query(name, metrics, task, totals, situation, keep)
        found = tuple(problems(mill))
        workers = tuple(self._workers(totals))
        sample = MillSample(
            at_s=now_us / SECOND_US,
            policy=mill.dispatcher.chooser.policy.name,
            problems=found,
            streams=streams,
            queries=queries,
            tasks=tasks,
            workers=workers,
        )
        self._note_events(sample)
        if keep:
            self._kept_s = totals.at
            self._record_history(sample)
        self._latest = sample
        return sample

    def _rate(self, key: str, count: float, totals: _CounterSnapshot) -> float:
        """Return the rate of a counter since the oldest stored sample. A new counter starts at 0."""
        totals.counts[key] = count
        before = self._totals[0]
        if totals.at <= before.at:
            return 0.0
        return max(0.0, (count - before.counts.get(key, 0.0)) / (totals.at - before.at))

    def _stream(self, name: str, totals: _CounterSnapshot) -> StreamSample:
        running = self._mill.running.streams[name]
        counts = running.counts
        return StreamSample(
            name=name,
            rate=self._rate(f"stream {name}", counts.read, totals),
            read=counts.read,
            unneeded=counts.unneeded,
            late=counts.late,
            bad=counts.bad,
            error=running.error,
            watermark_us=_moment(running.announced),
            ended=running.ended,
        )

    def _task(self, task: RunningTask, totals: _CounterSnapshot) -> TaskSample:
        known, running = task.statistics, self._mill.dispatcher.running
        waits = task.id in running.position
        outputs = [log for _, log in task.plan.task.outputs]
        return TaskSample(
            id=task.id,
            cpu=self._rate(f"cpu {task.id}", known.cpu_s, totals),
            rows_waiting=running.rows_waiting(task.id)[0] if waits else 0,
            longest_wait_s=running.longest_wait_s(task.id, self._wall_us()) if waits else 0.0,
            state_bytes=task.state_bytes,
            subtasks=task.subtasks,
            queries=tuple(log for log in outputs if log in self._mill.queries),
            node_rates={
                node: self._rate(f"node {node}", rows, totals)
                for node, rows in list(known.rows_by_node.items())
            },
            input_rates={
                log: self._rate(f"read {task.id} {log}", rows, totals)
                for log, rows in list(known.rows_read.items())
            },
        )

    def _sources(self) -> dict[str, tuple[str, ...]]:
        """Return the streams that each query reads, directly or through other queries."""
        graph = self._mill.running.plan.graph
        reads: dict[str, frozenset[str]] = {}
        for node in graph:  # the order is topological
            own = frozenset([node.operator.stream]) if isinstance(node.operator, Source) else frozenset()
            reads[node.id] = own.union(*(reads[source] for source in node.inputs))
        return {name: tuple(sorted(reads.get(name, ()))) for name in self._mill.queries}

    def _situation(
        self,
        query: Query,
        metrics: QueryMetrics,
        task: TaskSample | None,
        read: Sequence[StreamSample],
        cores: Mapping[str, float],
        sink_error: str | None,
    ) -> QuerySituation:
        shed = metrics.shed
        state, life = state_of(self._mill, self._mill.catalog.queries[query.name.lower()]), query.status()
        return QuerySituation(
            task=task.id if task is not None else query.name,
            state=state,
            failed=(life.why or "no reason is known") if state in _STOPPED else query.error,
            sink_error=sink_error,
            tasks=cores,
            mill_problem=self._mill.dispatcher.problem,
            failing_sources={stream.name: stream.error for stream in read if stream.error is not None},
            rows_waiting=task.rows_waiting if task is not None else 0,
            longest_wait_s=task.longest_wait_s if task is not None else 0.0,
            watermarks={
                stream.name: None if stream.watermark_us is None else stream.watermark_us / SECOND_US
                for stream in read
                # Streams without rows are omitted, because the clock advances their watermark.
                # Ended streams are omitted too, because their watermark delays no query.
                if stream.read and not stream.ended
            },
            has_ended=bool(read)
            and all(stream.ended for stream in read)
            and not (task is not None and task.rows_waiting),
            level=None if metrics.slo is None else str(metrics.slo),
            shed_share=shed.dropped / shed.arrived if shed is not None and shed.arrived else 0.0,
            python=metrics.python_s / metrics.cpu_s if metrics.cpu_s > 0 else 0.0,
        )

    def _gc_share(
        self, name: str, metrics: QueryMetrics, task: TaskSample | None, totals: _CounterSnapshot
    ) -> float:
        """Return the share of a task's recent CPU time that garbage collection has used."""
        collecting = self._rate(f"collecting {name}", metrics.collecting_s, totals)
        return collecting / task.cpu if task is not None and task.cpu > 0 else 0.0

    def _query(
        self,
        name: str,
        metrics: QueryMetrics,
        task: TaskSample | None,
        totals: _CounterSnapshot,
        situation: QuerySituation,
        keep: bool,
    ) -> QuerySample:
        sharing = max(1, len(task.queries)) if task is not None else 1
        cpu = task.cpu if task is not None else 0.0
        ring = self._rings.setdefault(name, MetricRing(QUERY_FIGURES))
        rate = self._rate(f"query {name}", metrics.rows, totals)
        shed = metrics.shed
        watermark_us = _moment(announced_watermark(self._mill, name))
        lag_s = _lag_s(watermark_us, situation.watermarks.values())
        if keep:
            values = self._since_last(name, metrics, totals.at)
            values |= {
                "rate": rate,
                "rows_waiting": metrics.memory.rows,
                "state_bytes": metrics.memory.state_bytes,
                "cpu": cpu / sharing,
                "lag_s": lag_s,
                "shed": None if shed is None else shed.dropped,
                "accuracy": None if shed is None else shed.accuracy,
            }
            ring.add(self._wall_us() / SECOND_US, values)
        return QuerySample(
            name=name,
            state=situation.state,
            task=situation.task,
            shared_by=sharing,
            rows=metrics.rows,
            rate=rate,
            p50_ms=ring.last("p50_ms"),
            p99_ms=ring.last("p99_ms"),
            slowdown=ring.last("slowdown"),
            staleness=ring.last("staleness"),
            rows_waiting=metrics.memory.rows,
            state_bytes=metrics.memory.state_bytes,
            cpu=cpu / sharing,
            task_cpu=cpu,
            level=situation.level,
            level_met=situation.level_met,
            lag_s=lag_s,
            budget=self._budget(name),
            shed=None if shed is None else shed.dropped,
            shed_share=None if shed is None else situation.shed_share,
            accuracy=None if shed is None else shed.accuracy,
            watermark_us=watermark_us,
            policy=metrics.policy,
            cause=cause_of(situation),
        )

    def _budget(self, name: str) -> str | None:
        """Return the load shedding budget of a query as text, or None if it has none."""
        query = self._mill.catalog.queries.get(name.lower())
        if query is None or (query.load is None and query.options.memory is None):
            return None
        asked = {"lag": query.options.lag, "memory": query.options.memory, "keep": query.options.keep}
        words = [f"{what} {text}" for what, text in asked.items() if text is not None]
        return ", ".join([*words, *([query.options.shedding] if query.options.shedding else [])])

    def _since_last(self, name: str, metrics: QueryMetrics, at: float) -> dict[str, float | None]:
        """Return response times and slowdown of the results since the last stored sample."""
        slowdown = metrics.figures.slowdown
        now = (
            dict(metrics.responses.counts),
            Summary(slowdown.count, slowdown.total),
            metrics.stale.stale,
            at,
        )
        counts, before, stale, before_at = self._responses.get(name, ({}, Summary(), 0.0, math.nan))
        self._responses[name] = now
        fresh = Quantiles({index: n - counts.get(index, 0) for index, n in now[0].items()})
        results = slowdown.count - before.count
        there = at - before_at
        return {
            "p50_ms": 1000 * fresh.at(0.5) if fresh.count else None,
            "p99_ms": 1000 * fresh.at(0.99) if fresh.count else None,
            "slowdown": (slowdown.total - before.total) / results if results > 0 else None,
            "staleness": min(1.0, (now[2] - stale) / there) if there > 0 else None,
        }

    def _workers(self, totals: _CounterSnapshot) -> Iterator[WorkerSample]:
        """Yield CPU use and state size of the subtasks on each worker."""
        dispatcher = self._mill.dispatcher
        found: dict[int, list[tuple[float, int]]] = {}
        for task in list(dispatcher.running.tasks):
            for subtask, statistics in list(task.statistics.subtasks.items()):
                worker = dispatcher.worker_of(task, subtask)
                if worker is not None:
                    rate = self._rate(f"subtask {task.id} {subtask}", statistics.cpu_s, totals)
                    found.setdefault(worker, []).append((rate, statistics.state_bytes))
        for worker, subtasks in sorted(found.items()):
            cores, kept = (sum(column) for column in zip(*subtasks, strict=True))
            yield WorkerSample(worker, len(subtasks), cores, int(kept))

    def _record_history(self, sample: MillSample) -> None:
        for name in [name for name in self._rings if name not in sample.queries]:
            del self._rings[name]
            self._responses.pop(name, None)
        self._levels.forget_others(sample.queries.keys())
        response, slowdown = Summary(), Summary()
        for query in list(self._mill.queries.values()):
            figures = query.measured().figures
            response.merge(figures.response)
            slowdown.merge(figures.slowdown)
        before_response, before_slowdown = self._overall
        self._overall = response, slowdown
        mean_s = _mean_since(response, before_response)
        self._mill_ring.add(
            sample.at_s,
            {
                "rate": sum(stream.rate for stream in sample.streams.values()),
                "response_ms": None if mean_s is None else 1000 * mean_s,
                "slowdown": _mean_since(slowdown, before_slowdown),
                "rows_waiting": sum(task.rows_waiting for task in sample.tasks.values()),
                "cpu": sum(task.cpu for task in sample.tasks.values()),
            },
        )

    def _note_events(self, sample: MillSample) -> None:
        if not self._policies or self._policies[-1][1] != sample.policy:
            self._policies.append((sample.at_s, sample.policy))
        before = self._latest
        if before is None:
            return

        def note(name: str, kind: str, text: str) -> None:
            self.events.appendleft(MillEvent(sample.at_s, name, kind, text))

        if before.policy != sample.policy:
            note("", "policy", f"the scheduling policy changed from {before.policy} to {sample.policy}")
        for name in sample.queries.keys() - before.queries.keys():
            note(name, "created", f"query {name} was created")
        for name in before.queries.keys() - sample.queries.keys():
            note(name, "dropped", f"query {name} was dropped")
        for name in sample.queries.keys() & before.queries.keys():
            was, now = before.queries[name], sample.queries[name]
            if was.state != now.state and "paused" in (was.state, now.state):
                note(name, now.state, f"{name} {'was paused' if now.state == 'paused' else 'was resumed'}")
            if now.attention is Severity.BROKEN and was.attention is not Severity.BROKEN and now.cause:
                note(name, now.cause.kind, f"{name}: {now.cause.text}")
            elif was.attention is Severity.BROKEN and now.attention is not Severity.BROKEN:
                note(name, "well", f"{name} runs again")
        for name in sample.streams.keys() & before.streams.keys():
            if sample.streams[name].ended and not before.streams[name].ended:
                note(name, "ended", f"stream {name} has ended")
        for problem in set(sample.problems) - set(before.problems):
            note("", "problem", problem)


def announced_watermark(mill: Mill, log: str) -> int:
    """Return the announced watermark of a log without advancing it."""
    if log in mill.running.streams:
        return mill.running.streams[log].announced
    writer = mill.dispatcher.running.writers.get(log)
    return BEGINNING if writer is None else writer.watermark(log)


def _moment(watermark: int) -> int | None:
    return watermark if 0 < watermark < END else None


def _lag_s(watermark_us: int | None, streams: Iterable[float | None]) -> float | None:
    known = [at for at in streams if at is not None]
    return None if watermark_us is None or not known else max(0.0, max(known) - watermark_us / SECOND_US)


def _mean_since(now: Summary, before: Summary) -> float | None:
    count = now.count - before.count
    return (now.total - before.total) / count if count > 0 else None


# Service levels over the last minute, so that an earlier slow start has no effect


RECENT_S = 60.0


@dataclass(frozen=True, slots=True)
class _ResponseCounters:
    """Cumulative response time counters of a query at one time."""

    at_s: float
    counts: dict[int, int]
    results: int
    total_s: float


class RecentLevels:
    """Response times of queries over the last minute, in the measure of their service levels."""

    def __init__(self) -> None:
        self._counted: dict[str, deque[_ResponseCounters]] = {}

    def measured_s(self, name: str, metrics: QueryMetrics, at_s: float) -> float | None:
        """Return the last minute's response time in the measure of the service level, or None without one."""
        if metrics.slo is None:
            return None
        response = metrics.figures.response
        now = _ResponseCounters(at_s, dict(metrics.responses.counts), response.count, response.total)
        kept = self._counted.setdefault(name, deque([_ResponseCounters(at_s, {}, 0, 0.0)]))
        kept.append(now)
        while len(kept) > 2 and kept[1].at_s <= at_s - RECENT_S:
            kept.popleft()
        return _between(kept[0], now, metrics.slo)

    def forget_others(self, names: Collection[str]) -> None:
        for name in self._counted.keys() - set(names):
            del self._counted[name]


def _between(before: _ResponseCounters, now: _ResponseCounters, level: ServiceLevel) -> float | None:
    results = now.results - before.results
    if results <= 0:
        return None
    if level.measure == "mean":
        return (now.total_s - before.total_s) / results
    share = 1.0 if level.measure == "max" else int(level.measure[1:]) / 100
    fresh = Quantiles({index: n - before.counts.get(index, 0) for index, n in now.counts.items()})
    found = fresh.at(share)
    return None if math.isnan(found) else found
