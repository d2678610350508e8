"""Simulation of the driver in virtual time, to predict response times under a scheduling policy.

A job is one round of the driver. Jobs run one after the other. A job runs tasks in the order of the policy
until each CPU core has work for a quantum (target duration). Its results are available when the job ends. A
run of a task reads as many pending polls of a source as fit into the quantum, but at least one. If no other
task waits, the run reads all polls. The simulation uses the same `Chooser` as the driver. All rows of a poll
have one arrival time, so they are counted, not sampled: under any policy, the first n input rows of a task
cause floor(S·n) results (P6-P9, P29-P31).
"""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Floats
from slicemill.metrics.quality_of_service import QueryStatistics, StaleTime, Summary
from slicemill.scheduling.batches import QUANTUM_S, Batches, rows_within
from slicemill.scheduling.capacity import Costs, Output, TaskCost
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.portions import QueryGroup, TaskColumns, WorkTree

_LEAST_WAIT_S = 1e-6


@dataclass(slots=True)
class QueryOutcome:
    """Response times, staleness and pending rows of one query."""

    figures: QueryStatistics = field(default_factory=QueryStatistics)
    stale: StaleTime = field(default_factory=StaleTime)
    staleness: float = math.nan
    mean_waiting: float = math.nan
    most_waiting: int = 0

    def record(self, arrival: float, departure: float, results: int, ideal_s: float) -> None:
        """Record `results` results that have the same arrival time and the same departure time."""
        response = departure - arrival
        self.figures.response.merge(_equal(response, results))
        self.figures.slowdown.merge(_equal(response / ideal_s, results))
        self.stale.add(arrival, departure)

    def merge(self, other: QueryOutcome, share: float) -> None:
        """Add another outcome of the same query, which covers the share `share` of the total duration."""
        self.figures.merge(other.figures)
        self.staleness += share * (other.staleness - self.staleness)
        self.mean_waiting += share * (other.mean_waiting - self.mean_waiting)
        self.most_waiting = max(self.most_waiting, other.most_waiting)


@dataclass(slots=True)
class Outcome:
    """Metrics of one policy, simulated or measured.

    The metrics cover the time from the first poll to the end of the last job.
    """

    queries: dict[str, QueryOutcome]
    loaded_s: float
    """Time in seconds at which the last row arrived."""
    lasted_s: float = 0.0
    """Time in seconds at which the last result was available."""
    busy_s: float = 0.0
    jobs: int = 0
    mean_waiting: float = math.nan
    most_waiting: int = 0

    def merge(self, other: Outcome) -> None:
        """Add the outcome of another simulation or measurement under the same policy."""
        share = other.lasted_s / (self.lasted_s + other.lasted_s)
        for name, query in self.queries.items():
            query.merge(other.queries[name], share)
        self.mean_waiting += share * (other.mean_waiting - self.mean_waiting)
        self.most_waiting = max(self.most_waiting, other.most_waiting)
        self.loaded_s += other.loaded_s
        self.lasted_s += other.lasted_s
        self.busy_s += other.busy_s
        self.jobs += other.jobs

    def overall(self) -> QueryStatistics:
        whole = QueryStatistics()
        for query in self.queries.values():
            whole.merge(query.figures)
        return whole

    @property
    def staleness(self) -> float:
        """Return the mean staleness of all queries: the share of time in which results were outdated."""
        known = [query.staleness for query in self.queries.values()]
        return sum(known) / len(known) if known else math.nan

    @property
    def behind_s(self) -> float:
        """Return the seconds from the arrival of the last row to the last result."""
        return self.lasted_s - self.loaded_s


class _Rows(NamedTuple):
    """Group of rows with one arrival time, queued at the time `queued`."""

    arrival: float
    queued: float
    number: int


@dataclass(slots=True)
class _Queue:
    """Pending rows of a task as groups with equal arrival times, oldest first.

    A row is pending until the end of the job that reads it.
    """

    parts: deque[_Rows] = field(default_factory=deque)
    rows: int = 0
    most: int = 0
    waited: float = 0.0
    """Sum of the waiting times of all rows that were read."""
    read: int = 0
    ran: float = 0.0

    def put(self, part: _Rows) -> None:
        self.parts.append(part)
        self.rows += part.number
        self.most = max(self.most, self.rows)

    def groups_to_read(self, most_rows: float) -> tuple[int, int]:
        """Return how many groups of rows a run reads, and how many rows these groups have.

        At least one group is read. Further groups are read while the total is at most `most_rows`.
        """
        count = rows = 0
        for part in self.parts:
            if count and rows + part.number > most_rows:
                break
            count, rows = count + 1, rows + part.number
        return count, rows

    def take(self, count: int, now: float) -> list[_Rows]:
        """Remove the oldest `count` groups of rows, and return them."""
        taken = [self.parts.popleft() for _ in range(count)]
        self.rows -= sum(part.number for part in taken)
        self.waited += sum(part.number * (now - part.queued) for part in taken)
        self.ran = now
        return taken


def simulate_arrivals(
    costs: Costs, cores: int, chooser: Chooser, arrivals: Sequence[Poll], quantum_s: float = QUANTUM_S
) -> Outcome:
    """Simulate the driver for given polls of sources, until all rows are processed."""
    return _Simulation(costs, cores, chooser, arrivals, quantum_s).run_to_end()


class _TaskRun(NamedTuple):
    """Run of a task in a job, with the number of row groups and of rows that the run reads."""

    task: TaskCost
    parts: int
    rows: int


class _Simulation:
    def __init__(
        self, costs: Costs, cores: int, chooser: Chooser, arrivals: Sequence[Poll], quantum_s: float
    ) -> None:
        self._quantum_s = quantum_s
        self._costs = costs
        self._cores = cores
        self._chooser = chooser
        self._coming = deque(arrivals)
        self._queues = {task.id: _Queue() for task in costs.tasks}
        self._readers: dict[str, list[_Queue]] = {}
        for task in costs.tasks:
            for log in task.inputs:
                self._readers.setdefault(log, []).append(self._queues[task.id])
        self._trees = [_tree(task, costs, cores) for task in costs.tasks]
        self._position = {task.id: position for position, task in enumerate(costs.tasks)}
        self._figures = TaskColumns(len(costs.tasks))
        self._figured = [0] * len(costs.tasks)
        queries = [output.log for _, output in costs.queries()]
        self._ideal = {log: costs.ideal_s(log, cores) for log in queries}
        loaded_s = arrivals[-1].at if arrivals else 0.0
        self._outcome = Outcome({log: QueryOutcome() for log in queries}, loaded_s)

    def run_to_end(self) -> Outcome:
        now = 0.0
        while True:
            self._admit(now)
            ready = [task for task in self._costs.tasks if self._queues[task.id].parts]
            if ready:
                now = self._job(self._chosen(ready, now), now)
            elif self._coming:
                now = self._coming[0].at
            else:
                return self._finished(now)

    def _admit(self, now: float) -> None:
        while self._coming and self._coming[0].at <= now:
            at, stream, rows = self._coming.popleft()
            self._arrive(stream, _Rows(at, at, rows))

    def _arrive(self, log: str, part: _Rows) -> None:
        for queue in self._readers.get(log, ()):
            queue.put(part)
        waiting = sum(queue.rows for queue in self._queues.values())
        self._outcome.most_waiting = max(self._outcome.most_waiting, waiting)

    def _chosen(self, ready: Sequence[TaskCost], now: float) -> list[_TaskRun]:
        """Return the runs of the next job in the order of the policy, so that each core's quantum is used."""
        batches = self._batches(ready, now)
        busy_s = [0.0] * self._cores
        runs = []
        for index in self._chooser.choose(batches, len(ready)):
            task = ready[index]
            # A partitioned task has a subtask on every core. Any other task runs on the first free core.
            cores = range(self._cores) if task.splits else [busy_s.index(min(busy_s))]
            if any(busy_s[core] >= self._quantum_s for core in cores):
                continue
            run = _TaskRun(task, *self._queues[task.id].groups_to_read(float(batches.rows[index])))
            runs.append(run)
            for core in cores:
                busy_s[core] += task.longest_s(run.rows, self._cores)
            if min(busy_s) >= self._quantum_s:
                break
        return runs

    def _batches(self, ready: Sequence[TaskCost], now: float) -> Batches:
        queues = [self._queues[task.id] for task in ready]
        tasks = np.array([self._position[task.id] for task in ready], np.intp)
        for position, queue in zip(tasks.tolist(), queues, strict=True):
            self._update_statistics(position, queue.rows)
        # The wait counts from arrival at the source, also for rows that another task has emitted.
        wait = np.array([max(now - queue.parts[0].arrival, _LEAST_WAIT_S) for queue in queues])
        pending = np.array([float(queue.rows) for queue in queues])
        # The driver measures the cost of each task, so the simulation uses the same cost.
        overhead = [task.task_s for task in ready]
        per_row = [task.row_s / task.subtasks(self._cores) for task in ready]
        shared_s = self._quantum_s if len(ready) > 1 else math.inf
        rows = np.minimum(pending, rows_within(shared_s, overhead, per_row))
        return Batches(
            tasks,
            self._figures,
            rows=rows,
            worth=rows,
            pending=pending,
            wait=wait,
            slack=self._figures.within[tasks] - wait,
            idle=np.array([now - queue.ran for queue in queues]),
        )

    def _update_statistics(self, position: int, rows: int) -> None:
        """Recompute the statistics of a task if its number of pending rows has about doubled or halved."""
        size = rows.bit_length()
        if self._figured[position] != size:
            self._figures.set(position, self._trees[position], float(rows))
            self._figured[position] = size

    def _job(self, runs: Sequence[_TaskRun], now: float) -> float:
        """Run a job over the rows that are pending now, and return the time at which it ends.

        Rows that arrive during the job wait for the next job.
        """
        end = now + self._costs.together_s([(run.task, run.rows) for run in runs], self._cores)
        self._admit(end)
        self._outcome.jobs += 1
        self._outcome.busy_s += end - now
        for task, parts, _ in runs:
            queue = self._queues[task.id]
            taken = queue.take(parts, end)
            for output in task.outputs:
                self._emit(output, _results(output.per_row, queue.read, taken), end)
            queue.read += sum(part.number for part in taken)
        return end

    def _emit(self, output: Output, results: Sequence[tuple[float, int]], end: float) -> None:
        for arrival, count in results:
            self._arrive(output.log, _Rows(arrival, end, count))
            if output.is_query:
                self._outcome.queries[output.log].record(arrival, end, count, self._ideal[output.log])

    def _finished(self, now: float) -> Outcome:
        outcome = self._outcome
        outcome.lasted_s = now
        outcome.mean_waiting = sum(queue.waited for queue in self._queues.values()) / now if now else 0.0
        for task, output in self._costs.queries():
            query, queue = outcome.queries[output.log], self._queues[task.id]
            query.staleness = min(1.0, query.stale.stale / now) if now else 0.0
            query.mean_waiting = queue.waited / now if now else 0.0
            query.most_waiting = queue.most
        return outcome


def _results(per_row: float, read: int, taken: Sequence[_Rows]) -> list[tuple[float, int]]:
    """Return the arrival time and the number of the results that each group of rows causes.

    `read` is the number of rows that the task has read before.
    """
    results = []
    for part in taken:
        made = _whole(per_row * (read + part.number)) - _whole(per_row * read)
        read += part.number
        if made:
            results.append((part.arrival, made))
    return results


def _whole(results: float) -> int:
    return math.floor(results + 1e-9)


def _equal(value: float, count: int) -> Summary:
    return Summary(count, count * value, count * value * value, value)


def _tree(task: TaskCost, costs: Costs, cores: int) -> WorkTree:
    alone = costs.alone(task, cores)
    served = [
        QueryGroup(
            (output.per_row,),
            (output.weight,),
            costs.ideal_s(output.log, cores),
            math.inf if output.within_s is None else output.within_s,
        )
        for output in task.outputs
        if output.is_query
    ]
    readers = [
        (output.per_row, _tree(reader, costs, cores))
        for output in task.outputs
        for reader in costs.tasks
        if output.log in reader.inputs
    ]
    return WorkTree(alone.overhead, alone.per_row, tuple(served), tuple(readers))


# Simulated traffic: number of rows at each poll of a source (P36, P37).
#
# Traffic is steady, Poisson, bursty, or recorded. At each poll, all rows since the previous poll become
# visible, and the time of the poll is their arrival time. Bursts are synthetic. Their durations are Pareto
# distributed, so that some bursts are long. The rate in a burst is five times the mean rate, and a silence
# before each burst restores the mean.


Shape = Callable[[Floats, np.random.Generator], Floats]
"""Function from times to the number of rows that have arrived, at a mean rate of one row per second."""

_BURST_RATE = 5.0
_BURST_S = 1.0
_LONGEST_BURST_S = 30.0


class Poll(NamedTuple):
    """Rows of a stream that become visible at one time."""

    at: float
    stream: str
    rows: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of a stream: its mean rate and shape (for example bursty), or its recorded polls."""

    rate: float
    shape: str = "steady"
    recorded: tuple[tuple[float, int], ...] = ()


def _steady(times: Floats, random: np.random.Generator) -> Floats:
    del random
    return times


def _bursty(times: Floats, random: np.random.Generator) -> Floats:
    edges, come = [0.0], [0.0]
    while edges[-1] < times[-1]:
        burst = min(_BURST_S * (random.pareto(1.5) + 1) / 3, _LONGEST_BURST_S)
        silence = random.exponential(burst * (_BURST_RATE - 1))
        edges += [edges[-1] + silence, edges[-1] + silence + burst]
        come += [come[-1], come[-1] + burst * _BURST_RATE]
    so_far = np.interp(times, edges, come)
    # The durations have a heavy tail, so the sample is scaled to the requested mean rate.
    scaled: Floats = so_far * (times[-1] / so_far[-1]) if so_far[-1] > 0 else times
    return scaled


SHAPES: Mapping[str, Shape] = MappingProxyType({"steady": _steady, "poisson": _steady, "bursty": _bursty})


def polls(traffic: Mapping[str, Traffic], every_s: float, duration_s: float, seed: int = 1) -> list[Poll]:
    """Return the polls of all streams, in order of time.

    Each stream has its own random generator.
    """
    times: Floats = every_s * np.arange(1, max(1, round(duration_s / every_s)) + 1, dtype=np.float64)
    found: list[Poll] = []
    for number, (stream, asked) in enumerate(sorted(traffic.items())):
        if asked.recorded:
            found += [Poll(at, stream, rows) for at, rows in asked.recorded if at <= duration_s and rows]
            continue
        random = np.random.default_rng([seed, number])
        expected = asked.rate * SHAPES[asked.shape](times, random)
        if asked.shape == "poisson":
            rows = random.poisson(np.diff(expected, prepend=0.0))
        else:
            rows = np.diff(np.floor(expected + 1e-9), prepend=0.0).astype(np.int64)
        found += [Poll(float(at), stream, int(count)) for at, count in zip(times, rows, strict=True) if count]
    return sorted(found)


def read_recorded(path: Path) -> Traffic:
    """Read recorded traffic: lines of `seconds,rows`, in order of time.

    The rate is the mean over all lines.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            recorded = tuple((float(at), int(rows)) for at, rows in csv.reader(lines))
    except OSError as problem:
        raise SlicemillError(f"cannot read {path}: {problem.strerror}") from None
    except ValueError:
        raise SlicemillError(
            f"{path} has an invalid line; write `seconds,rows` on each line, for example 0.5,120"
        ) from None
    times = [at for at, _ in recorded]
    if not recorded or times != sorted(times) or times[0] < 0 or min(rows for _, rows in recorded) < 0:
        raise SlicemillError(
            f"{path} has negative numbers or unsorted times; sort the lines by time, from 0 on"
        )
    return Traffic(sum(rows for _, rows in recorded) / max(times[-1], 1e-9), "recorded", recorded)


def mean_rates(traffic: Mapping[str, Traffic]) -> dict[str, float]:
    return {stream: asked.rate for stream, asked in traffic.items()}


def total_rows(arrivals: Sequence[Poll]) -> int:
    return sum(poll.rows for poll in arrivals)
