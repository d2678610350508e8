"""Autoscaler: changes the number of subtasks of busy tasks, if a cost model predicts a gain.

The cost model uses rates of rows and of join comparisons since the last measurement. An engine with a fixed
number of subtasks or a fixed placement has no autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slicemill.plan.placement import Placement
from slicemill.plan.rescale_decision import (
    BUSY,
    Hysteresis,
    TaskWork,
    calibrate_statistics,
    cheaper_placement,
)
from slicemill.runtime.rescale import Rescaler, can_change
from slicemill.runtime.tasks import RunningTask
from slicemill.runtime.workers.sharing import Pool
from slicemill.time import SECOND_US

_LOOK_US = 2 * SECOND_US


@dataclass(slots=True)
class _TaskCounters:
    """Row, comparison and time counters of a task at a measurement."""

    rows: dict[str, int]
    pairs: dict[str, int]
    subtasks_s: dict[int, float]


@dataclass(slots=True)
class Autoscaler:
    """Component that periodically measures all tasks and changes their placement on subtasks."""

    replacing: Rescaler
    pool: Pool
    clock: Callable[[], int]
    _looked_us: int = 0
    _counted: dict[str, _TaskCounters] = field(default_factory=dict)
    _hysteresis: dict[str, Hysteresis] = field(default_factory=dict)

    def look(self) -> None:
        """Measure all tasks, and apply placements that were better in several measurements.

        The method may be called often. Measurements are _LOOK_US apart.
        """
        now_us = self.clock()
        elapsed_s = (now_us - self._looked_us) / SECOND_US
        if now_us - self._looked_us < _LOOK_US:
            return
        self._looked_us = now_us
        tasks, workers = self.replacing.dispatcher.running.tasks, len(self.pool.members())
        before, self._counted = self._counted, {task.id: _task_counters(task) for task in tasks}
        self._hysteresis = {task.id: self._hysteresis.get(task.id, Hysteresis()) for task in tasks}
        for task in list(tasks):
            known = before.get(task.id)
            found = self._better_placement(task, known, elapsed_s, workers) if known is not None else None
            wanted = self._hysteresis[task.id].decide(found)
            if wanted is not None and self.replacing.rescale(task, wanted):
                # The new subtasks start their counters at zero, so the old counters are dropped.
                del self._counted[task.id]

    def _better_placement(
        self, task: RunningTask, before: _TaskCounters, elapsed_s: float, workers: int
    ) -> Placement | None:
        now = self._counted[task.id]
        busy_s = [cpu_s - before.subtasks_s.get(subtask, cpu_s) for subtask, cpu_s in now.subtasks_s.items()]
        if workers < 2 or max(busy_s, default=0.0) < BUSY * elapsed_s:
            return None
        rates = {log: (rows - before.rows.get(log, rows)) / elapsed_s for log, rows in now.rows.items()}
        pairs = {join: (count - before.pairs.get(join, 0)) / elapsed_s for join, count in now.pairs.items()}
        plan, placement = task.plan, Placement.of(task.plan.exchanges)
        work = TaskWork(sum(busy_s) / elapsed_s, pairs)
        statistics = calibrate_statistics(plan.task, plan.graph, placement, rates, work)
        task_, graph = plan.task, plan.graph
        return cheaper_placement(
            task_, graph, placement, workers, statistics, lambda to: can_change(task_, graph, to)
        )


def _task_counters(task: RunningTask) -> _TaskCounters:
    statistics = task.statistics
    subtasks_s = {subtask: found.cpu_s for subtask, found in statistics.subtasks.items()}
    return _TaskCounters(dict(statistics.rows_read), dict(statistics.compared), subtasks_s)
