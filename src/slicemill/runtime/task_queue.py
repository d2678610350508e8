"""Table of running tasks: their pending rows, costs and deadlines, updated incrementally.

A scheduling decision considers all tasks that can run. With thousands of tasks, computing the pending rows of
each task would take longer than many runs. So the table reads the new epochs of each log once, adds them to
all tasks that read the log, and recomputes a task only after a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slicemill.catalog.catalog import QueryDefinition
from slicemill.kernels.arrays import Floats
from slicemill.metrics.due_times import TimeMoments
from slicemill.metrics.quality_of_service import IdealTime, WaitingRows
from slicemill.operators.alignment import Dues, is_reached
from slicemill.operators.join.heavy_keys import KeySample
from slicemill.runtime.streams import RunningStream, stream_of
from slicemill.runtime.tasks import BACKFILL, RunningTask
from slicemill.scheduling.batches import Batches, rows_within
from slicemill.scheduling.policies import Policy
from slicemill.scheduling.portions import Positions, QueryGroup, TaskColumns, WorkTree
from slicemill.scheduling.statistics import LogOrigin, MadeOf, ideal_time
from slicemill.shedding.load import Backlog
from slicemill.storage.log import Log
from slicemill.time import BEGINNING, END, SECOND_US

_LEAST_WAIT_S = 1e-6
# Minimum share of a worker's time for a task that backfills (reads old rows for a new query).
LEAST_SHARE = 0.1
# Permitted share of fixed overhead in the time of a backfill run (over old rows for a new query).
# Runs of a backfill are short, so that live tasks do not wait.
_PAST_OVERHEAD = 0.5
_FIRST_ROWS = 50.0


@dataclass(frozen=True, slots=True)
class Goal:
    """Weight of a query, and the bound on its response times."""

    weight: float = 1.0
    within_s: float = np.inf

    @staticmethod
    def of(query: QueryDefinition) -> Goal:
        slo = query.options.slo
        return Goal(query.options.weight, np.inf if slo is None else slo.bound_s)


class RunningTasks:
    """Table of all running tasks, in which each task has a row number (position).

    A new table takes over the waiting times of the previous table, `before`.
    """

    def __init__(
        self,
        tasks: Sequence[RunningTask],
        logs: Mapping[str, Log],
        goals: Mapping[str, Goal],
        now_us: int,
        before: RunningTasks | None = None,
    ) -> None:
        self.tasks = list(tasks)
        self.position = {task.id: position for position, task in enumerate(tasks)}
        self._logs = logs
        self.goals = goals
        self.strictest_s = min((goal.within_s for goal in goals.values()), default=np.inf)
        count = len(tasks)
        read: dict[str, list[int]] = {}
        for position, task in enumerate(tasks):
            for log in task.plan.task.inputs:
                read.setdefault(log, []).append(position)
        self._readers = {log: np.array(positions, np.intp) for log, positions in read.items()}
        self._heads = {log: logs[log].head for log in read}
        self._origins: dict[str, tuple[str, ...]] = {}
        self.writers = {log: task for task in tasks for _, log in task.plan.task.outputs}
        # Positions of tasks that write logs for other tasks or read such logs, upstream tasks first.
        self._along_derived = [
            position
            for position, task in enumerate(tasks)
            if any(log in self.writers for log in task.plan.task.inputs)
            or any(log in read for _, log in task.plan.task.outputs)
        ]
        self._written = {
            log: LogOrigin(made_of, task.statistics)
            for task in tasks
            for log, made_of in task.made_of.items()
        }
        self._joins = np.array([_is_join(self._written, task) for task in tasks], np.bool_)
        self._has_joins = bool(self._joins.any())
        self._windowed = {log for task in tasks for log in task.logs_released_by_time}
        self._epochs = np.zeros(count, np.int64)
        self.rows = np.zeros(count, np.int64)
        self._worth = np.zeros(count)
        self._worth_of_row = {log: np.ones(count) for log in read}
        self._kept = np.ones(count)
        self._oldest_us = np.full(count, END)
        # For each task with one input: smallest watermark at which held-back rows are due.
        self._due = np.full(count, END)
        self._holds = np.zeros(count, np.bool_)
        self._begins = np.zeros(count, np.bool_)
        # Position of a task with several inputs -> watermarks at which its held-back rows are due.
        self._dues: dict[int, Dues] = {}
        self._free = np.ones(count, np.bool_)
        # True to skip tasks whose outputs are all failed or paused
        self._rest: bool = before is None or before._rest
        self._catching_up = np.zeros(count, np.bool_)
        self._usual_rows = np.zeros(count)
        self._usual_s = np.zeros(count)  # usual duration of a run of each task
        # Tasks of new queries that still read old rows (backfill) and have not joined a shared task.
        self.apart = [task for task in tasks if BACKFILL in task.fields]
        self._not_ended = {log: np.ones(count, np.bool_) for log in read}
        self._ready_since_us = np.full(count, END)
        self._last_run_us = np.zeros(count, np.int64)
        self._ends_us = np.full(count, np.inf)  # estimated end of the next window of each task
        self._late_us = np.array([self._allowed_us(task) for task in tasks])
        self._has_windows = bool(np.isfinite(self._late_us).any())
        self.figures = TaskColumns(count)
        self._own = np.zeros((3, count))
        self._counted_us = now_us
        self.waiting = WaitingRows(count, now_us)
        self._trees = [self._tree(task) for task in tasks]
        for position, task in enumerate(tasks):
            self._update_row(position, task, now_us)
        self._feeding = self._pairs_with_windows()
        self._component_of = _components(tasks)
        self._components = np.array([self._component_of[task.plan.task.outputs[0][1]] for task in tasks])
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: RunningTasks) -> None:
        known = {
            here: before.position[name] for name, here in self.position.items() if name in before.position
        }
        for here, there in known.items():
            for name in ("_ready_since_us", "_last_run_us", "_ends_us"):
                getattr(self, name)[here] = getattr(before, name)[there]
        self.waiting.take_over(before.waiting, known)

    def task(self, task_id: str) -> RunningTask | None:
        position = self.position.get(task_id)
        return None if position is None else self.tasks[position]

    def moments(self, task: RunningTask, streams: Mapping[str, RunningStream]) -> tuple[TimeMoments, ...]:
        """Return the times at which the source streams of a task's results reached recent timestamps.

        Recent timestamps are those after the task's watermark.
        """
        if not task.plan.task.stateful:
            # A stateless task emits rows at once, so it needs no times of its source streams.
            return ()
        after = min(task.input_watermarks().values(), default=BEGINNING)
        return tuple(stream_of(log, streams).moments(log, after) for log in self._origins_of(task))

    def warm_us(self, task: RunningTask, now_us: int) -> int:
        """Return the time by which a task and all its upstream tasks had completed their first run."""
        before = [
            self.warm_us(self.writers[log], now_us) for log in task.plan.task.inputs if log in self.writers
        ]
        return max([now_us if task.warm_us is None else task.warm_us, *before])

    def _origins_of(self, task: RunningTask) -> tuple[str, ...]:
        """Return the logs of the source streams from which a task's results are derived."""
        known = self._origins.get(task.id)
        if known is None:
            found = [
                self._origins_of(self.writers[log]) if log in self.writers else (log,)
                for log in task.plan.task.inputs
            ]
            known = self._origins[task.id] = tuple(dict.fromkeys(log for part in found for log in part))
        return known

    def wake(self) -> None:
        """Include paused tasks in all following scheduling decisions."""
        self._rest = False
        for position, task in enumerate(self.tasks):
            self._free[position] = task.run is None and not task.has_failed

    # -- incremental updates ---------------------------------------------------------------------------

    def refresh(self, now_us: int) -> None:
        """Count new rows of all logs as pending work of the tasks that read these logs."""
        before_us, self._counted_us = self._counted_us, now_us
        self.waiting.passed(self.rows, now_us)
        for log, head in self._heads.items():
            if self._logs[log].head == head:
                continue
            epochs = self._logs[log].epochs(after=head)
            readers = self._readers[log]
            self._epochs[readers] += len(epochs)
            rows = sum(epoch.rows for epoch in epochs)
            self.rows[readers] += rows
            if self._has_joins:
                self._worth[readers] += rows * self._worth_of_row[log][readers]
            if log not in self.writers:
                # Rows of a source stream may have arrived at any time since the last refresh.
                # Rows written by other tasks count as arrived at this refresh.
                for epoch in epochs:
                    self.waiting.came(readers, epoch.rows, max(epoch.arrival_us, before_us))
            oldest = min(epoch.arrival_us for epoch in epochs)
            self._oldest_us[readers] = np.minimum(self._oldest_us[readers], oldest)
            self._heads[log] = epochs[-1].number
        self.waiting.now(self.rows)

    def arrived(self, log: str, samples: Mapping[str, KeySample]) -> None:
        """Pass the frequent keys of rows written to a log on to the tasks that read the log.

        `samples` maps the id of each exchange (partitioning of the log) to its key sample.
        """
        for task in self.tasks if samples else ():
            task.arrived(log, samples)

    def began(self, task: RunningTask) -> None:
        """Mark a task as running, so that it is not started twice."""
        position = self.position.get(task.id)
        if position is not None:
            self._free[position] = False

    def ran(self, task: RunningTask, now_us: int) -> None:
        """Recompute the row of a task in this table after its run."""
        position = self.position.get(task.id)
        if position is None or self.tasks[position] is not task:
            return
        self.refresh(now_us)
        self._last_run_us[position] = now_us
        self._ready_since_us[position] = END
        self._update_row(position, task, now_us)

    def _update_row(self, position: int, task: RunningTask, now_us: int) -> None:
        if self._joins[position]:
            for log in task.plan.task.inputs:
                self._worth_of_row[log][position] = task.statistics.worth(log)
        self._kept[position] = task.kept_share
        self._catching_up[position] = task.catching_up
        self._count_pending(position, task)
        dues, inputs = task.due, task.plan.task.inputs
        self._holds[position] = bool(dues) and len(inputs) == 1
        self._due[position] = min((due[inputs[0]] for due in dues), default=END) if len(inputs) == 1 else END
        self._dues.pop(position, None)
        if dues and len(inputs) > 1:
            self._dues[position] = dues
        self._begins[position] = task.begins
        self._free[position] = task.run is None and not (task.is_idle if self._rest else task.has_failed)
        watermarks = task.input_watermarks()
        self._ends_us[position] = np.inf
        if dues and watermarks:
            # The end of the next window is estimated as if the watermark advanced with the clock.
            left_us = min(max([0, *(ts - watermarks[log] for log, ts in due.items())]) for due in dues)
            self._ends_us[position] = now_us + left_us + self._late_us[position]
        for log in task.plan.task.inputs:
            self._not_ended[log][position] = watermarks.get(log) != END
        cost = task.statistics.cost
        self._own[:, position] = cost.overhead, cost.per_row, task.load_weight
        self._usual_rows[position] = cost.mean_rows
        self._usual_s[position] = cost.overhead + cost.per_row * cost.mean_rows
        self._trees[position] = self._tree(task)
        self.figures.set(position, self.work_tree(position), cost.mean_rows)

    def is_catching_up(self, task_id: str) -> bool:
        """Return True while a task is backfilling, that is, reading old rows for a new query."""
        position = self.position.get(task_id)
        return position is not None and bool(self._catching_up[position])

    def mark_live(self, task: RunningTask) -> None:
        """Treat a task as live (not backfilling), because its backfill has ended."""
        self._catching_up[self.position[task.id]] = False

    def _count_pending(self, position: int, task: RunningTask) -> None:
        """Count the pending rows of a task that the last refresh has seen."""
        waiting = {log: task.waiting(log, self._heads[log]) for log in task.plan.task.inputs}
        self._epochs[position] = sum(epochs for epochs, _, _ in waiting.values())
        self.rows[position] = sum(rows for _, rows, _ in waiting.values())
        self._worth[position] = sum(
            self._worth_of_row[log][position] * rows for log, (_, rows, _) in waiting.items()
        )
        oldest = [arrival_us for _, _, arrival_us in waiting.values() if arrival_us is not None]
        self._oldest_us[position] = min(oldest, default=END)

    # -- scheduling decisions ---------------------------------------------------------------------------

    def logs_to_check(self) -> list[str]:
        """Return the input logs of tasks without new rows. `ready` needs the watermarks of these logs.

        Reading the watermark of a stream announces it, so watermarks of other logs are not read.
        """
        can = self._has_work
        return [log for log, readers in self._readers.items() if not can[readers].all()]

    def ready(
        self, watermarks: Mapping[str, int], now_us: int, quantum_s: float = np.inf
    ) -> tuple[Positions, Batches]:
        """Return the tasks that can run, by their positions in this table, and their pending work.

        `watermarks` are the watermarks of the logs in `logs_to_check`. While several tasks can run, a run is
        limited to a quantum.
        """
        positions = np.flatnonzero(self._can_run(watermarks))
        self._ready_since_us[positions] = np.minimum(self._ready_since_us[positions], now_us)
        return positions, self.batches(positions, now_us, quantum_s)

    def batches(self, positions: Positions, now_us: int, quantum_s: float = np.inf) -> Batches:
        """Return the pending work of the tasks at the given positions, even if they cannot run now."""
        oldest = np.minimum(self._oldest_us, self._ready_since_us)[positions]
        wait = np.maximum((now_us - oldest) / SECOND_US, _LEAST_WAIT_S)
        # Rows that load shedding will drop add neither cost nor value to the pending work (P38).
        kept = self._kept[positions]
        pending = np.maximum(kept * self.rows[positions], 1.0)
        overhead, per_row = self._own[:2].take(positions, axis=1)
        behind = self._catching_up[positions]
        shared_s = quantum_s if len(positions) - behind.sum() > 1 else np.inf
        within = rows_within(shared_s, overhead, per_row)
        if behind.any():
            within = np.where(behind, self._backfill_rows(positions, quantum_s), within)
        rows = np.minimum(pending, within)
        worth = rows
        if self._has_joins:
            worth = np.maximum(kept * self._worth[positions], 1.0) * (rows / pending)
        return Batches(
            positions,
            self.figures,
            rows=rows,
            worth=worth,
            pending=pending,
            wait=wait,
            slack=self._slack(positions, wait, now_us),
            idle=(now_us - self._last_run_us[positions]) / SECOND_US,
        )

    def _backfill_rows(self, positions: Positions, quantum_s: float) -> Floats:
        """Return the maximum number of rows per run of tasks that backfill (read old rows).

        Live rows may arrive at any time. They should wait at most half as long as their own run takes. The
        first runs read few rows, to measure the cost per row.
        """
        if not np.isfinite(quantum_s):
            return np.full(len(positions), np.inf)
        live_s = float(self._usual_s[~self._catching_up].max(initial=0.0))
        overhead, per_row = self._own[:2].take(positions, axis=1)
        within = rows_within(min(quantum_s, live_s / 2 or quantum_s), overhead, per_row, _PAST_OVERHEAD)
        return np.minimum(within, np.maximum(_FIRST_ROWS, 2 * self._usual_rows[positions]))

    def order_backfills_last(
        self, ranked: Mapping[RunningTask, float], now_us: int
    ) -> dict[RunningTask, float]:
        """Order tasks that backfill (read old rows) behind live tasks, unless they have run too little.

        Live tasks keep the order of the policy. A backfilling task goes first if it has run for less than
        LEAST_SHARE of the time.
        """
        if not self._catching_up.any():
            return dict(ranked)
        first: dict[RunningTask, float] = {}
        last: dict[RunningTask, float] = {}
        live: dict[RunningTask, float] = {}
        for task, share in ranked.items():
            position = self.position[task.id]
            if not self._catching_up[position]:
                live[task] = share
                continue
            overhead, per_row = self._own[:2, position]
            took_s = overhead + per_row * share * self.rows[position]
            idle_s = (now_us - self._last_run_us[position]) / SECOND_US
            (first if idle_s * LEAST_SHARE >= took_s else last)[task] = share
        return {**first, **live, **last}

    def within_components(
        self, policies: Mapping[str, Policy], positions: Positions
    ) -> list[tuple[Policy, Positions]]:
        """Return each policy that is set for a plan component, with the indexes of the component's tasks.

        A component is a set of tasks that share no logs with other tasks. `policies` maps a log to a policy.
        """
        chosen = self._by_component(policies)
        if not chosen:
            return []
        components = self._components[positions]
        return [(policy, np.flatnonzero(components == number)) for number, policy in chosen.items()]

    def policy_within(self, policies: Mapping[str, Policy], log: str) -> Policy | None:
        """Return the scheduling policy of the plan component to which a log belongs, or None."""
        return self._by_component(policies).get(self._component_of.get(log, -1))

    def _by_component(self, policies: Mapping[str, Policy]) -> dict[int, Policy]:
        """Map the number of each plan component to its policy. If several are given, the last applies."""
        return {self._component_of[log]: p for log, p in policies.items() if log in self._component_of}

    def _slack(self, positions: Positions, wait: Floats, now_us: int) -> Floats:
        """Return the time to the next deadline of each task (P24).

        A deadline belongs to the oldest row or to the end of a window. A task that feeds a window has the
        deadline of that window. While the end of a window is unknown, the deadline counts from the arrival of
        the oldest row.
        """
        slack = self.figures.within[positions] - wait
        if not self._has_windows:
            return slack
        ends_us = self._ends_us.copy()
        feeding, windows = self._feeding
        np.minimum.at(ends_us, feeding, self._ends_us[windows])
        ends_s = (ends_us[positions] - now_us) / SECOND_US
        unknown = self._late_us[positions] / SECOND_US - wait
        return np.minimum(slack, np.where(np.isinf(ends_s), unknown, ends_s))

    def backlog(self, cores: int) -> Backlog:
        """Estimate the time to process all pending rows (P38)."""
        overhead, per_row, weight = self._own
        # The many pending rows of a backfill (read of old rows) are no sign of overload.
        rows = np.where(self._catching_up, 0, self.rows)
        rows_s = per_row * rows
        certain_s = float(overhead[rows > 0].sum() + rows_s[weight == 0].sum())
        return Backlog(certain_s / cores, float((weight * rows_s).sum()) / cores)

    @property
    def _has_work(self) -> npt.NDArray[np.bool_]:
        """Return, for each task, True if it has new rows or must run once before its first row."""
        found: npt.NDArray[np.bool_] = (self._epochs > 0) | self._begins
        return found

    def _can_run(self, watermarks: Mapping[str, int]) -> npt.NDArray[np.bool_]:
        """Return, for each task, True if the task can run.

        A task can run if it has work, rows that are due by time, or an ended input. Each task runs once at
        the end of an input, even if it holds back no rows, because other tasks read its logs.
        """
        can = self._has_work
        if not watermarks:
            return can & self._free
        least = np.full(len(self.tasks), END)
        ended = np.zeros(len(self.tasks), np.bool_)
        for log, ts in watermarks.items():
            readers = self._readers[log]
            least[readers] = np.minimum(least[readers], ts)
            if ts == END:
                ended[readers] |= self._not_ended[log][readers]
        can |= (self._holds & (least >= self._due)) | ended
        for position, dues in self._dues.items():
            can[position] = can[position] or is_reached(dues, watermarks)
        for position in self._tasks_on_demand(can, watermarks):
            can[position] = True
        return can & self._free

    def _tasks_on_demand(self, can: npt.NDArray[np.bool_], known: Mapping[str, int]) -> Iterator[int]:
        """Yield tasks that must run without new rows, only to advance a watermark (M25).

        A downstream task holds rows back until the watermark of a log reaches a time. If the inputs of the
        task that writes the log have reached that time, a run without rows advances the watermark. Otherwise
        the demand passes to the tasks that write these inputs.
        """
        wanted: dict[str, int] = {}
        for position in reversed(self._along_derived):
            task = self.tasks[position]
            if can[position] or not self._free[position]:
                continue
            asked = [ts for _, log in task.plan.task.outputs if (ts := wanted.get(log)) is not None]
            waits = list(self._dues_of(position))
            if asked:
                need, told, inputs = min(asked), task.input_watermarks(), task.plan.task.inputs
                if any(known[log] < need for log in inputs):
                    waits.append(dict.fromkeys(inputs, need))
                elif any(told.get(log, BEGINNING) < need for log in inputs):
                    yield position
            for log, ts in ((log, ts) for due in waits for log, ts in due.items()):
                if log in self.writers and known[log] < ts:
                    wanted[log] = min(ts, wanted.get(log, ts))

    def _dues_of(self, position: int) -> Dues:
        if self._holds[position]:
            (log,) = self.tasks[position].plan.task.inputs
            return ({log: int(self._due[position])},)
        return self._dues.get(position, ())

    def work_tree(self, position: int) -> WorkTree:
        """Return the estimated work of a task and of all its downstream tasks."""
        task = self.tasks[position]
        readers = [
            (task.statistics.selectivity(log), self.work_tree(int(reader)))
            for _, log in task.plan.task.outputs
            for reader in self._readers.get(log, ())
        ]
        return replace(self._trees[position], readers=tuple(readers))

    def _tree(self, task: RunningTask) -> WorkTree:
        """Return the estimated work of a task alone, not of its downstream tasks."""
        cost = task.statistics.cost
        return WorkTree(cost.overhead, cost.per_row, tuple(self._served(task)))

    def _served(self, task: RunningTask) -> Iterator[QueryGroup]:
        """Yield groups of a task's queries. Queries of a group have equal response times without load."""
        alike: dict[MadeOf, list[str]] = {}
        for _, log in task.plan.task.outputs:
            if log in self.goals and log not in task.failed:
                alike.setdefault(self._written[log].made_of, []).append(log)
        for logs in alike.values():
            goals = [self.goals[log] for log in logs]
            yield QueryGroup(
                shares=tuple(task.statistics.selectivity(log) for log in logs),
                weights=tuple(goal.weight for goal in goals),
                ideal_s=self.ideal_time(logs[0]).whole_s,
                within_s=min(
                    (
                        goal.within_s
                        for log, goal in zip(logs, goals, strict=True)
                        if log not in self._windowed
                    ),
                    default=np.inf,
                ),
            )

    def _allowed_us(self, task: RunningTask) -> float:
        """Return the time within which a task must emit results after the end of a window."""
        levels = [
            goal.within_s if np.isfinite(goal.within_s) else 0.0
            for _, log in task.plan.task.outputs
            if log in self._windowed and (goal := self.goals.get(log)) is not None
        ]
        return min(levels, default=np.inf) * SECOND_US

    def _pairs_with_windows(self) -> tuple[Positions, Positions]:
        """Return all pairs of a task and a downstream task that computes windows, as two arrays."""
        pairs = {
            (position, behind)
            for position in range(len(self.tasks))
            for behind in self._behind(position)
            if np.isfinite(self._late_us[behind])
        }
        feeding, windows = np.array(sorted(pairs), np.intp).reshape(-1, 2).T
        return feeding, windows

    def _behind(self, position: int) -> set[int]:
        """Return all tasks downstream of a task."""
        found: set[int] = set()
        waiting = [position]
        while waiting:
            for _, log in self.tasks[waiting.pop()].plan.task.outputs:
                readers = {int(reader) for reader in self._readers.get(log, ())} - found
                found |= readers
                waiting += readers
        return found

    def ideal_time(self, log: str) -> IdealTime:
        """Return the ideal response time of a row of a log.

        The time counts from the arrival of the row's inputs, without other load.
        """
        return ideal_time(log, self._written)

    def rows_waiting(self, task: str) -> tuple[int, float, int]:
        """Return the current, average and maximum number of pending rows of a task."""
        position = self.position[task]
        return int(self.rows[position]), *self.waiting.of(position)

    def longest_wait_s(self, task: str, now_us: int) -> float:
        """Return the time since the arrival of the oldest pending row of a task."""
        oldest = int(self._oldest_us[self.position[task]])
        return 0.0 if oldest == END else max(0.0, (now_us - oldest) / SECOND_US)


def _components(tasks: Sequence[RunningTask]) -> dict[str, int]:
    """Map each log to the number of its connected component of the plan (M1)."""
    found: dict[str, int] = {}
    for number, task in enumerate(tasks):
        logs = {*task.plan.task.inputs, *(log for _, log in task.plan.task.outputs)}
        met = {found[log] for log in logs if log in found}
        part = min(met, default=number)
        found |= dict.fromkeys(logs, part)
        if len(met) > 1:
            found = {log: part if known in met else known for log, known in found.items()}
    return found


def _is_join(written: Mapping[str, LogOrigin], task: RunningTask) -> bool:
    """Return True if an output of a task combines rows of several inputs."""
    made = [written[log].made_of for _, log in task.plan.task.outputs]
    return any(not isinstance(parts, str) and parts.joined for parts in made)
