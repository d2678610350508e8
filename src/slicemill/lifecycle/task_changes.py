"""Transition from the running plan to a new plan: tasks continue, start, change or end.

A change of the plan affects only rows that arrive later. So the driver first processes pending input in the
tasks upstream of a changed task. Then the changed task processes its pending input with its old plan.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

from slicemill.catalog.catalog import AGAIN, JOINING, Catalog
from slicemill.columns.arrow_schema import to_arrow
from slicemill.errors import SlicemillError
from slicemill.lifecycle.catalog_diff import CatalogDiff, TaskDiff, TaskEffect
from slicemill.lifecycle.replace import Replacement
from slicemill.lifecycle.start_positions import backfill_fields
from slicemill.lifecycle.tables import TableVersions
from slicemill.lifecycle.task_fields import (
    LEFT_OUT,
    fields_with_queries,
    fields_without_pending,
    keep_watermarks,
    moved_at_start,
    new_fields,
    reads_changes,
    redistribution_fields,
    without_logs,
    without_names,
    without_new_queries,
    without_state,
)
from slicemill.operators.graph import QueryGraph
from slicemill.plan.backfill_tasks import backfill_tasks
from slicemill.plan.content import quote_name
from slicemill.plan.partitioning import Exchange, exchanges_by_log
from slicemill.plan.placement import PlacementKind, choose_placement, kept_placement, replacement
from slicemill.plan.planner import Plan
from slicemill.plan.tasks import Task, task_subgraph
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.rescale import divides_state, fixed_nodes
from slicemill.runtime.tasks import RunningTask
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.time import BEGINNING, END

_LOGGER = logging.getLogger("slicemill")


@dataclass(slots=True)
class PreparedTasks:
    """Tasks of a new plan, with the journal record that commits their changes."""

    plan: Plan
    catalog: Catalog
    parts: list[tuple[TaskPlan, RunningTask | None]] = field(default_factory=list)
    change: Change = field(default_factory=Change)
    changed: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)

    def set_fields(self, task: str, fields: dict[str, Any]) -> None:
        self.change.tasks[task] = {**self.change.tasks.get(task, {}), **fields}
        self.changed.add(task)


@dataclass(slots=True)
class TaskChanges:
    """Creates and changes the tasks of the engine when its plan changes.

    `subtasks` is the number of partitions of a new task. `placement` is a kind of partitioning to use instead
    of the cheapest kind.
    """

    home: Home
    dispatcher: Dispatcher
    tables: TableVersions
    mill: str
    subtasks: int
    placement: PlacementKind | None = None

    def diff(
        self, plan: Plan, catalog: Catalog, replacing: Replacement, tables: Collection[str] = ()
    ) -> tuple[TaskDiff, ...]:
        """Return how each task differs between a new plan and the running plan.

        A task that reads one of `tables` counts as changed.
        """
        backfills = backfill_tasks(plan.apart, plan.tasks)
        # The plan is sent to workers, so it must not grow with queries of other tasks.
        catalog = catalog.without_queries()
        found = []
        for task in plan.tasks:
            graph = task_subgraph(plan.graph, task)
            part = TaskPlan(
                task=task, graph=graph, catalog=catalog, tables={}, exchanges=self.exchanges(task, graph)
            )
            running, outputs = self.dispatcher.running.task(task.id), [log for _, log in task.outputs]
            effect = TaskEffect.CHANGES
            query = backfills.get(task.id)
            if query is not None and (task.id not in self.home.tasks or query in replacing.past):
                effect = TaskEffect.BACKFILLS
            elif task.id not in self.home.tasks:
                effect = TaskEffect.STARTS
            elif running is not None and replacing.anew.isdisjoint(outputs):
                same = (running.plan.task, running.plan.graph) == (task, graph)
                if same and running.plan.tables.keys().isdisjoint(tables):
                    effect = TaskEffect.CONTINUES
            before: Sequence[str] = self.home.tasks.get(task.id, {}).get("outputs", ())
            found.append(
                TaskDiff(
                    task=task.id, effect=effect, before=before, after=outputs, plan=part, running=running
                )
            )
        kept = {part.task for part in found}
        ended = [task for task in self.dispatcher.running.tasks if task.id not in kept]
        return (*found, *map(_ended, ended))

    def prepare(self, diff: CatalogDiff) -> PreparedTasks:
        """Process the pending input of changed tasks; return the changes to commit. Call while paused.

        Queries in `diff.replacing.anew` restart without state, from the rows that arrive now. Queries in
        `logs` have a new definition and keep the state that still fits. Queries in `past` start in the past
        instead. Before `commit` no change is durable, so a crash loses nothing.
        """
        prepared = PreparedTasks(diff.plan, diff.catalog)
        # Running tasks with their old plans; the tasks later in the loop read their output.
        current: list[RunningTask] = []
        for part in diff.tasks:
            if part.plan is None:
                assert part.running is not None, "only a running task ends"
                if not diff.replacing.logs.isdisjoint(part.before):
                    self._finish(part.running, current)
                prepared.gone.append(part.task)
                continue
            tables = self.tables.versions_read_by(part.plan.graph, part.plan.catalog)
            running = part.running
            if part.effect is TaskEffect.CONTINUES and running is not None and running.plan.tables == tables:
                prepared.parts.append((running.plan, running))
                current.append(running)
                continue
            plan = replace(part.plan, tables=tables)
            if part.effect is TaskEffect.BACKFILLS:
                self._prepare_backfill(plan, running, current, prepared, diff)
            elif part.effect is TaskEffect.STARTS:
                self._create_logs(plan, prepared)
                self.dispatcher.catch_up_upstream(current, plan.task.inputs)
                prepared.set_fields(part.task, new_fields(plan, self.home))
            else:
                self._create_logs(plan, prepared)
                self._warn_of_missed_rows(part.task, part.after, prepared)
                running = self._change_queries(plan, running, current, prepared, diff.replacing)
            prepared.parts.append((plan, running))
            current += [running] if running is not None else []
        return prepared

    def _prepare_backfill(
        self,
        plan: TaskPlan,
        running: RunningTask | None,
        feeding: Sequence[RunningTask],
        prepared: PreparedTasks,
        diff: CatalogDiff,
    ) -> None:
        """Prepare a backfill task, which reads past rows for a new or replaced query.

        The running task of a replaced query first processes its pending input.
        """
        query = backfill_tasks(diff.plan.apart, diff.plan.tasks)[plan.task.id]
        apart = diff.plan.apart[query]
        if running is not None:
            self._finish(running, feeding)
        self._create_logs(plan, prepared)
        replaced = query in diff.replacing.past and not apart.explicit
        given_us = self._given_us(query) if replaced else None
        fields = backfill_fields(plan, self.home, query, apart, diff.catalog, given_us)
        prepared.set_fields(plan.task.id, without_state(running) | fields)

    def commit(self, prepared: PreparedTasks, others: Change) -> list[RunningTask]:
        """Commit the changes of tasks in one journal record, and return the tasks to run.

        `others` may drop logs. The fields of tasks then lose what they have about these logs.
        """
        change = replace(
            others,
            created={**others.created, **prepared.change.created},
            tasks={**others.tasks, **prepared.change.tasks},
            dropped_tasks=[task for task in prepared.gone if task in self.home.tasks],
            dropped_logs=[],
            # No task needs the old versions of tables any more.
            tables={**self.tables.changes(), **others.tables},
        )
        self.home.commit(without_logs(others.dropped_logs, self.home, change))
        tasks = [
            running if running is not None and part.task.id not in prepared.changed else self._begun(part)
            for part, running in prepared.parts
        ]
        read_by = exchanges_by_log(task.plan.exchanges for task in tasks)
        for task in tasks:
            task.read_by = read_by
        return tasks

    def note_left_out(self, catalog: Catalog) -> None:
        """Record, and warn of, stored queries that are not declared again after a start of the engine."""
        declared = catalog.queries.keys() | catalog.relations.keys()
        change = Change()
        for task, fields in self.home.tasks.items():
            known = fields.get(LEFT_OUT, [])
            kept = [log for log in (*known, *fields["outputs"]) if log in self.home.logs]
            missing = sorted({log for log in kept if log.lower() not in declared and AGAIN not in log})
            if not set(missing) <= set(known):
                change.tasks[task] = {LEFT_OUT: sorted({*known, *missing})}
            for log in missing:
                _LOGGER.warning(
                    "%s is kept in %s and is not declared: it does not run, and will have missed what "
                    "arrives; declare it, or DROP it",
                    log,
                    self.home.folder,
                )
        if change:
            self.home.commit(change)

    def exchanges(self, task: Task, graph: QueryGraph) -> dict[str, Exchange]:
        """Return the partitioning of each input of a task over its subtasks (parallel instances).

        An existing task keeps its partitioning, if its queries allow it.
        """
        known = self.home.tasks.get(task.id)
        if known is not None:
            placement = kept_placement(task, graph, known["placement"])
            if placement is None:
                self._refuse_fixed_state(task, graph)
                subtasks = prod(known["placement"]["shape"])
                placement = replacement(task, graph, subtasks, partial(divides_state, task, graph))
            return dict(placement.exchanges)
        return dict(choose_placement(task, graph, self.subtasks, kind=self.placement).exchanges)

    def _refuse_fixed_state(self, task: Task, graph: QueryGraph) -> None:
        """Raise if a task must partition its rows by other keys, but its state cannot be moved."""
        running = self.dispatcher.running.task(task.id)
        kept = task.stateful_nodes if running is None else running.plan.task.stateful_nodes
        fixed = [node_id for node_id in fixed_nodes(task, graph) if node_id in kept]
        if fixed:
            names = ", ".join(quote_name(log) for _, log in task.outputs)
            raise SlicemillError(
                f"{task.id} keeps its state of {graph[fixed[0]].label or fixed[0]} "
                "in subtasks by other keys; "
                f"to begin without that state, run DROP QUERY {names} and create it anew"
            )

    def _given_us(self, log: str) -> int | None:
        """Return the time up to which the log of a query has all results, its last watermark.

        Return None if the time is unknown. A changelog has no such time.
        """
        if self.home.logs[log].changes:
            return None
        marks = [
            int(fields["output_watermarks"][log])
            for fields in self.home.tasks.values()
            if log in fields["output_watermarks"]
        ]
        known = max(marks, default=BEGINNING)
        return known if BEGINNING < known < END else None

    def _create_logs(self, plan: TaskPlan, prepared: PreparedTasks) -> None:
        """Make the output logs of a new task visible. The journal record of the change creates them."""
        created = {
            log: to_arrow(plan.graph[node].schema)
            for node, log in plan.task.outputs
            if log not in self.home.logs and not log.endswith(JOINING)
        }
        self.home.announce(created)
        prepared.change.created.update(created)

    def _begun(self, plan: TaskPlan) -> RunningTask:
        task = self._running(plan)
        keep_watermarks(task, self.dispatcher.streams)
        return task

    def _restarted(self, plan: TaskPlan) -> RunningTask:
        """Run a stored task from its checkpoint, partitioned differently if its queries need that.

        The checkpoint may be partitioned by keys that fit only queries which are no longer declared.
        """
        plan = replace(plan, exchanges=self.exchanges(plan.task, plan.graph))
        moved = moved_at_start(plan, self.home)
        if moved:
            self.home.commit(Change(tasks={plan.task.id: moved}))
        return self._begun(plan)

    def _running(self, plan: TaskPlan) -> RunningTask:
        by_key_alone = self.placement is PlacementKind.KEY
        return RunningTask(plan, self.home, self.mill, by_key_alone=by_key_alone)

    def _warn_of_missed_rows(self, task: str, logs: Collection[str], prepared: PreparedTasks) -> None:
        """Warn of queries that were not declared for a while and have missed rows in that time."""
        left_out = self.home.tasks[task].get(LEFT_OUT, [])
        back = [log for log in left_out if log in logs]
        if not back:
            return
        fields = prepared.change.tasks.setdefault(task, {})
        fields[LEFT_OUT] = without_names(left_out, back)
        for log in back:
            _LOGGER.warning(
                "%s, kept in %s, was not declared for a while: what arrived then is missing from its "
                "windows; run DROP QUERY %s once to begin anew",
                log,
                self.home.folder,
                quote_name(log),
            )

    def _change_queries(
        self,
        plan: TaskPlan,
        running: RunningTask | None,
        feeding: Sequence[RunningTask],
        prepared: PreparedTasks,
        replacing: Replacement,
    ) -> RunningTask:
        """Prepare the change of a task's queries or tables.

        The task's state is checkpointed before the change, so a replay never spans two plans.
        """
        task_id = plan.task.id
        fields = self.home.tasks[task_id]
        written = sorted(log for _, log in plan.task.outputs)
        tables = self.tables.rows_as_of_commit(plan.tables)
        if running is None and fields["outputs"] == written and tables == plan.tables:
            return self._restarted(plan)
        before = running
        if before is None:
            known = without_new_queries(plan, fields["outputs"])
            before = self._restarted(replace(known, tables=tables))
        self.dispatcher.catch_up_upstream(feeding, plan.task.inputs)
        if before is running and before.catching_up:
            # A backfill joins with the current tables, so the change need not wait for its end.
            self.dispatcher.checkpoint([before])
        self.dispatcher.finish(before)
        passes_by = before.has_failed and before.pending() and not reads_changes(plan, self.home)
        # A new query must not read earlier rows, so failed queries of its task restart without state.
        passed = fields_without_pending(before, self.home) if passes_by else None
        changed = fields_with_queries(plan, before, self.home, replacing.anew, replacing.logs, passed)
        prepared.set_fields(task_id, changed | redistribution_fields(plan, before, changed["checkpoint"]))
        return before

    def _finish(self, task: RunningTask, feeding: Sequence[RunningTask]) -> None:
        """Process all pending input of a task before the task ends."""
        self.dispatcher.catch_up_upstream(feeding, task.plan.task.inputs)
        self.dispatcher.finish(task)


def _ended(task: RunningTask) -> TaskDiff:
    before = [log for _, log in task.plan.task.outputs]
    return TaskDiff(task=task.id, effect=TaskEffect.ENDS, before=before, running=task)
