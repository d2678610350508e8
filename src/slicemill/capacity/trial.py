"""Trials: run a script's queries on Spark over sample rows, and measure the cost of each task.

Rows are fed to the streams in polls at given times, so every policy gets the same arrivals. The sources
are not polled during a trial.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.api.mill import Mill
from slicemill.catalog.catalog import Catalog, SourceSpec, Stream
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.columns.rows import to_table
from slicemill.connectors.finite import read_rows
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.records import BadRow
from slicemill.metrics.profiling import Stages, recording
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.placement import placements_of
from slicemill.plan.tasks import Task, split_into_tasks
from slicemill.runtime.tasks import RunningTask
from slicemill.runtime.workers.inline import InlinePool
from slicemill.scheduling.capacity import Costs, Output, TaskCost
from slicemill.scheduling.statistics import BatchCost, TaskStatistics
from slicemill.sql.errors import SourceText
from slicemill.storage.home_reader import HomeReader
from slicemill.testing import open_mill
from slicemill.time import SECOND_US, wall_clock_us
from slicemill.types import Kind, Timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAMPLED_S, _MOST_SAMPLED = 60.0, 200_000
# Sizes of polls, in multiples of the polling interval.
# The first polls fill windows and caches and do not count.
_UNCOUNTED = (8, 1)
_COUNTED = (1, 4, 16, 1, 4, 16, 2, 8, 1, 4, 16)
# Prefix of the stages that a subtask reports. The remaining time of a run is spent in the driver.
_RUN = "run: "

Progress = Callable[[str, float], None]
"""Callback with the name of the current step and the completed share, from 0 to 1."""


@dataclass(slots=True)
class TrialClock:
    now: int

    def __call__(self) -> int:
        return self.now


@dataclass(slots=True)
class TrialSamples:
    """Sample rows of a script's streams, read once for all trials.

    A sample has the rows of a minute at the given rates.
    """

    rates: Mapping[str, float]
    folder: Path = Path()
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def of(self, mill: Mill) -> dict[str, TrialStream]:
        for name, running in mill.running.streams.items():
            if name not in self.tables:
                rows = max(1, min(round(self.rates.get(name, 0.0) * _SAMPLED_S), _MOST_SAMPLED))
                self.tables[name] = read_sample(running.stream, rows, self.folder)
        return {
            name: TrialStream(running.stream, self.tables[name])
            for name, running in mill.running.streams.items()
        }


@contextmanager
def open_trial_mill(
    where: SparkSession | InlinePool, source: SourceText, clock: Callable[[], int], policy: str = "fcfs"
) -> Iterator[Mill]:
    """Run a script's queries in a temporary home directory, without reading sources or writing to sinks.

    Its sources are not read and its sinks are removed, so a trial emits no results. On Spark, keyed tasks
    have as many subtasks as there are cores, as the cost model assumes.
    """
    if isinstance(where, InlinePool):
        opened = open_mill(pool=where, policy=policy, clock=clock, subtasks=1, read_sources=False)
    else:
        subtasks = where.sparkContext.defaultParallelism
        opened = open_mill(where, policy=policy, clock=clock, subtasks=subtasks, read_sources=False)
    with opened as mill:
        mill.execute(source)
        for sink in mill.sinks.names():
            mill.sinks.remove(sink)
        mill.dispatcher.chooser.set_policy(policy)  # this policy replaces a policy that the script sets
        mill.open()
        if not mill.queries:
            raise SlicemillError(f"{source.name} has no continuous query, so there is nothing to plan for")
        yield mill


# -- Costs ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _MeasuredRuns:
    """Measured seconds of one task's runs.

    `subtasks` has the times of all subtasks by number of rows, `beside` the times of messages and commits,
    and `delivery` the times of the delivery of results.
    """

    subtasks: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    beside: list[float] = field(default_factory=list)
    delivery: list[float] = field(default_factory=list)
    rows_in: int = 0
    rows_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def per_row(self, log: str) -> float:
        return self.rows_out[log] / self.rows_in if self.rows_in else 0.0


def measure(
    where: SparkSession | InlinePool,
    source: SourceText,
    every_s: float,
    samples: TrialSamples,
    progress: Progress,
    counted: Sequence[int] = _COUNTED,
) -> Costs:
    """Measure the cost of each task alone, over polls of several sizes.

    Time is virtual, so the measurement does not wait for rows.
    """
    clock = TrialClock(wall_clock_us())
    with open_trial_mill(where, source, clock) as mill:
        progress("reading rows to measure with", 0.0)
        streams = samples.of(mill)
        found = {task.id: _MeasuredRuns() for task in mill.dispatcher.tasks.values()}
        sizes = (*_UNCOUNTED, *counted)
        for number, size in enumerate(sizes):
            progress("measuring what tasks cost", number / len(sizes))
            clock.now += int(size * every_s * SECOND_US)
            for name, stream in streams.items():
                rows = round(samples.rates.get(name, 0.0) * size * every_s)
                if rows:
                    mill.feed(name, stream.rows(rows, clock.now))
            mill.dispatcher.admit_handed()
            with mill.dispatcher.paused():
                for task in mill.dispatcher.tasks.values():
                    _time(mill, task, found[task.id] if number >= len(_UNCOUNTED) else _MeasuredRuns())
        stop_if_failed(mill)
        return _fit_costs(mill, found)


def _time(mill: Mill, task: RunningTask, runs: _MeasuredRuns) -> None:
    rows = sum(epoch.rows for epoch in task.pending())
    if not rows:
        return
    logs = [mill.home.logs[log] for _, log in task.plan.task.outputs]
    heads = [log.head for log in logs]
    began = time.perf_counter()
    with recording() as stages:
        mill.dispatcher.catch_up(task)
    took_s = time.perf_counter() - began
    subtasks_s = sum(stage.seconds for name, stage in stages.items() if name.startswith(_RUN))
    delivery_s = _seconds(stages, "deliver")
    runs.subtasks[rows].append(subtasks_s)
    # Subtasks run in parallel. The remaining time is spent on messages to workers and on the commit.
    runs.beside.append(took_s - subtasks_s / task.subtasks - delivery_s)
    runs.delivery.append(delivery_s)
    runs.rows_in += rows
    for (_, name), log, head in zip(task.plan.task.outputs, logs, heads, strict=True):
        runs.rows_out[name] += sum(epoch.rows for epoch in log.epochs(after=head))


def _seconds(stages: Stages, name: str) -> float:
    return stages[name].seconds if name in stages else 0.0


def _fit_costs(mill: Mill, found: Mapping[str, _MeasuredRuns]) -> Costs:
    tasks = []
    for task in mill.dispatcher.tasks.values():
        runs = found[task.id]
        cost = BatchCost(decay=1.0)
        # The median ignores single runs that a pause of the machine has delayed.
        for rows, seconds in runs.subtasks.items():
            cost.observe(rows, median(seconds))
        tasks.append(
            TaskCost(
                task.id,
                task.plan.task.inputs,
                tuple(output_of(log, runs.per_row(log), mill.catalog) for _, log in task.plan.task.outputs),
                splits=task.subtasks > 1,
                driver_s=median(runs.delivery) if runs.delivery else 0.0,
                task_s=cost.overhead / task.subtasks,
                row_s=cost.per_row,
            )
        )
    beside = [seconds for runs in found.values() for seconds in runs.beside]
    if not beside:
        raise SlicemillError("no task had rows to read; add --rate for the streams that queries read")
    return Costs(median(beside), tuple(tasks))


def stop_if_failed(mill: Mill) -> None:
    for name, query in mill.queries.items():
        if query.error is not None:
            raise SlicemillError(f"{name} failed on the rows of the trial: {query.error}")


# Sample rows for trials, taken from a stream's own source
#
# A trial feeds rows at its own rate, not at that of the source. So rows are read once in advance, and get new
# timestamps when they are fed to a stream. Other timestamps in a row are shifted by the same amount. A sample
# that is too short is repeated.


_GENERATORS = ("nexmark", "rfid")
_ENDS = ("events", "seconds")
_SPREAD_US = 200_000


def read_sample(stream: Stream, rows: int, folder: Path = Path()) -> pa.Table:
    """Read at most `rows` rows from the beginning of a stream's source."""
    try:
        good = (
            r for r in read_rows(_endless(stream.source, rows), stream.encoded_schema, folder) if _is_good(r)
        )
        sample = [Timed(0, row) for row in islice(good, rows) if not isinstance(row, BadRow)]
    except SlicemillError as problem:
        raise SlicemillError(
            f"the source of {stream.name} cannot be read for a trial: {problem}; "
            "use the costs of a home directory instead: --home"
        ) from None
    if not sample:
        raise SlicemillError(
            f"the source of {stream.name} has no rows for a trial; use the costs of a home directory: --home"
        )
    return to_table(sample, stream.source_schema, [0] * len(sample)).drop_columns([TS, SEQ, ARRIVAL])


def _is_good(row: object) -> bool:
    return not isinstance(row, BadRow)


def _endless(spec: SourceSpec, rows: int) -> SourceSpec:
    """Remove the limits of a generator source, so that it yields enough rows."""
    url = urlsplit(spec.url or "")
    if url.scheme not in _GENERATORS:
        return spec
    options = {name: value for name, value in parse_qsl(url.query) if name not in _ENDS}
    if url.scheme == "nexmark":
        # One Nexmark event in fifty is a person, which is the rarest kind of event.
        options["events"] = str(60 * rows)
    return replace(spec, url=urlunsplit(url._replace(query=urlencode(options))))


@dataclass(slots=True)
class TrialStream:
    """Endless rows of a stream, repeated from a sample."""

    stream: Stream
    sample: pa.Table
    _next: int = 0
    _reached_us: int = 0

    def rows(self, count: int, end_us: int) -> pa.Table:
        """Return the next rows, with timestamps up to `end_us`."""
        begin_us = max(self._reached_us, end_us - _SPREAD_US)
        self._reached_us = end_us
        positions = np.arange(self._next, self._next + count) % self.sample.num_rows
        self._next = (self._next + count) % self.sample.num_rows
        times = np.linspace(begin_us, end_us, count, endpoint=False).astype(np.int64)
        return _shift_timestamps(self.sample.take(pa.array(positions)), self.stream, times)


def _shift_timestamps(
    table: pa.Table, stream: Stream, times: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> pa.Table:
    """Set the time column, and shift other timestamps of each row by the same amount."""
    if stream.time_column is None or stream.stamp_column is not None:
        return table
    column = table.column(stream.schema.index(stream.time_column))
    by = pc.subtract(pa.array(times), column.cast(pa.int64()))
    for number, declared in enumerate(stream.schema):
        if declared.type.kind is Kind.TIMESTAMP:
            moved = pc.add(table.column(number).cast(pa.int64()), by).cast(column.type)
            table = table.set_column(number, table.field(number), moved)
    return table


# Task costs from the statistics in a home directory, without a trial


def costs_of_home(folder: Path, catalog: Catalog) -> Costs:
    """Return the costs of a script's tasks, from the statistics in a home directory."""
    graph = share(optimize(build_graph(catalog)), catalog)
    home = HomeReader(folder)
    known = [(task, *_load_statistics(home, task)) for task in split_into_tasks(graph)]
    # Each task's overhead includes the fixed cost of a job.
    # So the least overhead is the best estimate of that cost.
    job_s = min((statistics.cost.overhead for _, statistics, _ in known), default=0.0)
    return Costs(job_s, tuple(task_cost(*found, job_s, graph, catalog) for found in known))


def _load_statistics(home: HomeReader, task: Task) -> tuple[TaskStatistics, int]:
    """Return the stored statistics of a task, and its number of subtasks."""
    fields = home.tasks.get(task.id, {})
    kept = fields.get("statistics", {})
    known = kept.get("selectivities", {})
    if not all(log in known for _, log in task.outputs):
        raise SlicemillError(
            f"{home.folder} has no costs of {task.id}; run `slicemill run … --home {home.folder}` for a "
            "while, or leave --home out to measure now"
        )
    statistics = TaskStatistics()
    statistics.restore(kept)
    return statistics, prod(fields["placement"]["shape"])


def task_cost(
    task: Task, statistics: TaskStatistics, subtasks: int, job_s: float, graph: QueryGraph, catalog: Catalog
) -> TaskCost:
    """Return the cost of a task from statistics that were gathered with `subtasks` subtasks."""
    cost = statistics.cost
    outputs = tuple(output_of(log, statistics.selectivity(log), catalog) for _, log in task.outputs)
    return TaskCost(
        task.id,
        task.inputs,
        outputs,
        splits=len(placements_of(task, graph, 2)) > 1,
        driver_s=0.0,
        task_s=cost.overhead - job_s,
        row_s=cost.per_row * subtasks,
    )


def output_of(log: str, per_row: float, catalog: Catalog) -> Output:
    """Return a log with the weight and the service level of its query, if any."""
    query = catalog.queries.get(log)
    if query is None:
        return Output(log, per_row, is_query=False)
    slo = query.options.slo
    return Output(log, per_row, True, query.options.weight, None if slo is None else slo.bound_s)
