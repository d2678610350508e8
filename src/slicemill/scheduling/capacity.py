"""Capacity planning: predict from measured costs of tasks how many CPU cores the queries need.

A job is one round of the driver: messages to workers, their answers, and a commit. A job runs each of its
tasks as one subtask. A task that is partitioned by key runs as one subtask per core. Jobs, subtasks, and
the delivery of each task's results have fixed costs that do not depend on the number of rows. Times are in
seconds (§4.3).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from slicemill.errors import SlicemillError
from slicemill.scheduling.statistics import BatchCost


@dataclass(frozen=True, slots=True)
class Output:
    """Log to which a task writes query results or a derived stream."""

    log: str
    per_row: float
    """Results per input row."""
    is_query: bool = True
    weight: float = 1.0
    """Weight of a result of the query in weighted metrics."""
    within_s: float | None = None
    """Bound on the response time in seconds (service level of the query), or None."""


@dataclass(frozen=True, slots=True)
class TaskCost:
    id: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    splits: bool
    driver_s: float
    task_s: float
    row_s: float

    def subtasks(self, cores: int) -> int:
        return cores if self.splits else 1

    def longest_s(self, rows: float, cores: int) -> float:
        """Return the duration of each subtask of a run, if rows are evenly distributed over subtasks."""
        return self.task_s + self.row_s * rows / self.subtasks(cores)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of all tasks of a plan, in topological order."""

    job_s: float
    tasks: tuple[TaskCost, ...]

    def alone(self, task: TaskCost, cores: int) -> BatchCost:
        """Return the cost a + b·N of a job that runs only this task over N rows."""
        per_row = task.row_s / task.subtasks(cores)
        return BatchCost(self.job_s + task.driver_s + task.task_s, per_row)

    def together_s(self, runs: Sequence[tuple[TaskCost, float]], cores: int) -> float:
        """Return the duration of a job that runs several tasks on `cores` CPU cores.

        Each subtask runs on the first free core.
        """
        free = [0.0] * cores
        for task, rows in runs:
            for _ in range(task.subtasks(cores)):
                heapq.heapreplace(free, free[0] + task.longest_s(rows, cores))
        return self.job_s + sum(task.driver_s for task, _ in runs) + max(free)

    def rates(self, streams: Mapping[str, float]) -> dict[str, float]:
        """Return the rows per second that each log gets, at given rates of the source streams."""
        rates = dict(streams)
        for task in self.tasks:
            rows = task_rate(task, rates)
            rates.update({output.log: rows * output.per_row for output in task.outputs})
        return rates

    def utilisation(self, streams: Mapping[str, float], cores: int) -> float:
        """Return the utilisation ρ: required work per second, divided by the number of CPU cores.

        A task that is not partitioned can use only one core. So the result is the maximum of two values: the
        work of all tasks over all cores, and the work of a single task over the cores that it can use. Fixed
        costs of jobs and tasks are ignored, because larger batches reduce their share. If the result is below
        1, tasks keep up once batches are large enough.
        """
        rates = self.rates(streams)
        work = {task.id: task_rate(task, rates) * task.row_s for task in self.tasks}
        single = [work[task.id] / task.subtasks(cores) for task in self.tasks]
        return max([sum(work.values()) / cores, *single])

    def ideal_s(self, log: str, cores: int) -> float:
        """Return the ideal time T of the results in a log: their response time without other load.

        T is the time of a single row through all tasks that lead to the log.
        """
        for task in self.tasks:
            if any(output.log == log for output in task.outputs):
                before = max((self.ideal_s(given, cores) for given in task.inputs), default=0.0)
                return before + self.alone(task, cores).ideal_time
        return 0.0

    def streams(self) -> list[str]:
        """Return the names of the input logs that no task writes: the streams with a source."""
        written = {output.log for task in self.tasks for output in task.outputs}
        return sorted({log for task in self.tasks for log in task.inputs} - written)

    def queries(self) -> list[tuple[TaskCost, Output]]:
        return [(task, output) for task in self.tasks for output in task.outputs if output.is_query]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def task_rate(task: TaskCost, rates: Mapping[str, float]) -> float:
    return sum(rates.get(log, 0.0) for log in task.inputs)


def costs_from_json(text: str, name: str) -> Costs:
    """Parse the JSON text of task costs, which `Costs.to_json` has written.

    `name` is the file name for error messages.
    """
    try:
        content = json.loads(text)
        return Costs(float(content["job_s"]), tuple(_tasks(content["tasks"])))
    except (ValueError, KeyError, TypeError):
        raise SlicemillError(
            f"{name} has no measured costs; write them with `slicemill simulate … --save {name}`"
        ) from None


def _tasks(content: Iterable[dict[str, object]]) -> Iterable[TaskCost]:
    for task in content:
        outputs, inputs = task.pop("outputs"), task.pop("inputs")
        if not isinstance(outputs, list) or not isinstance(inputs, list):
            raise TypeError
        yield TaskCost(inputs=tuple(inputs), outputs=tuple(Output(**output) for output in outputs), **task)  # type: ignore[arg-type]
