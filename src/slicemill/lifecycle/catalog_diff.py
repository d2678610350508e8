"""Difference between the running catalog and a new catalog.

A change of the catalog has three steps: the new catalog is planned, its plan is compared with what runs
(`CatalogDiff`), and the difference is applied (`lifecycle.running_catalog`). The comparison changes nothing,
so its result can be printed instead of applied:

    task sums changes: adds hourly, drops daily
    task alerts starts: writes alerts
    stream readings is read
    log alerts is created

`slicemill explain --changes` prints the difference that a script would make in a home directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog, Stream
from slicemill.columns.arrow_schema import to_arrow
from slicemill.lifecycle.catalog_journal import StoredStatements, in_force, new_entries
from slicemill.lifecycle.replace import NOTHING_REPLACED, Replacement, with_users
from slicemill.lifecycle.start_positions import starts_apart
from slicemill.lifecycle.task_fields import query_placements
from slicemill.plan.backfill_tasks import backfill_tasks
from slicemill.plan.partitioning import Exchange
from slicemill.plan.planner import Plan, Planner
from slicemill.plan.projection_pushdown import SourceProjection
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.streams import Supply
from slicemill.runtime.tasks import RunningTask
from slicemill.sql.errors import SourceText
from slicemill.storage.home_reader import HomeReader


class TaskEffect(StrEnum):
    """Effect of a change of the catalog on a task."""

    CONTINUES = "continues"
    CHANGES = "changes"  # the task gets other queries, operators or tables, after a checkpoint
    STARTS = "starts"
    BACKFILLS = "starts in the past"
    ENDS = "ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDiff:
    """Effect of a change of the catalog on one task, with its output logs before and after the change.

    `plan` is the new plan, without table rows. It is None if the task ends. `running` is the running task.
    """

    task: str
    effect: TaskEffect
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    plan: TaskPlan | None = None
    running: RunningTask | None = None

    def __str__(self) -> str:
        added = [log for log in self.after if log not in self.before]
        dropped = [log for log in self.before if log not in self.after]
        if self.effect is TaskEffect.ENDS:
            parts = [f"wrote {', '.join(dropped)}"]
        elif not self.before:
            parts = [f"writes {', '.join(added)}"]
        else:
            parts = [f"adds {', '.join(added)}"] if added else []
            parts += [f"drops {', '.join(dropped)}"] if dropped else []
        return f"task {self.task} {self.effect.value}" + (f": {', '.join(parts)}" if parts else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogDiff:
    """Difference between the running catalog and a new one: changed tasks, streams, logs and sinks.

    `streams` are all streams to read. Streams in `started` are new. Streams in `redeclared` get columns or
    another source. `moved` maps each stream that gets another source to its changed journal fields. `needs`
    maps each stream to the rows and columns to store.
    """

    catalog: Catalog
    plan: Plan
    replacing: Replacement = NOTHING_REPLACED
    tasks: Sequence[TaskDiff] = ()
    streams: Sequence[Stream] = ()
    started: Sequence[Stream] = ()
    redeclared: Sequence[Stream] = ()
    moved: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    # Component that reads the source of each new or redeclared stream.
    supplies: Mapping[str, Supply] = field(default_factory=dict)
    needs: Mapping[str, SourceProjection] = field(default_factory=dict)
    # Partitionings by which the tasks that read each log exchange its rows.
    exchanges: Mapping[str, tuple[Exchange, ...]] = field(default_factory=dict)
    created: Mapping[str, pa.Schema] = field(default_factory=dict)  # schemas of logs to create
    dropped: Sequence[str] = ()  # names of logs to drop
    replaced_sinks: Sequence[str] = ()  # queries whose sink is replaced
    new_sinks: Sequence[str] = ()  # queries whose sink is opened

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "nothing changes"

    def _lines(self) -> Iterator[str]:
        yield from (str(task) for task in self.tasks if task.effect is not TaskEffect.CONTINUES)
        unchanged = sum(task.effect is TaskEffect.CONTINUES for task in self.tasks)
        if unchanged:
            yield f"{unchanged} {'task continues' if unchanged == 1 else 'tasks continue'} unchanged"
        yield from (f"stream {stream.name} is read" for stream in self.started)
        for stream in self.redeclared:
            change = "gets another source" if stream.name in self.moved else "gets columns"
            yield f"stream {stream.name} {change}"
        yield from (f"log {name} is created" for name in self.created)
        yield from (f"log {name} is emptied" for name in self.replacing.emptied)
        yield from (f"log {name} is dropped" for name in self.dropped)
        yield from (f"the sink of {name} is replaced" for name in self.replaced_sinks)
        yield from (f"the sink of {name} is opened" for name in self.new_sinks)


def predict_changes(script: SourceText, home: HomeReader) -> CatalogDiff:
    """Predict what a script would change, from the committed state of a home directory.

    The engine that uses the home directory may be running. Tasks are compared by the names of their queries.
    """
    stored = StoredStatements.of(home.statements, home.folder, home.logs)
    bound = bind(script, stored.catalog, lambda: stored.catalog)
    catalog, same, replaced = stored.reconcile(bound)
    replacing = NOTHING_REPLACED
    if replaced:
        entries = new_entries(bound, home.statements, 0, same)
        after = in_force([*home.statements, *entries])
        catalog, replacing = with_users(catalog, replaced, after, bound.source)
    past = starts_apart(catalog, home, lambda stream: stream.has_past, replacing.logs, replacing.past)
    plan = Planner().plan(catalog, query_placements(home.tasks), past)
    backfills, tasks = backfill_tasks(plan.apart, plan.tasks), []
    for task in plan.tasks:
        outputs = sorted(log for _, log in task.outputs)
        before: list[str] = home.tasks.get(task.id, {}).get("outputs", [])
        effect = TaskEffect.CONTINUES
        if task.id not in home.tasks:
            effect = TaskEffect.BACKFILLS if task.id in backfills else TaskEffect.STARTS
        elif before != outputs or not replacing.logs.isdisjoint(outputs):
            effect = TaskEffect.CHANGES
        tasks.append(TaskDiff(task=task.id, effect=effect, before=before, after=outputs))
    kept = {diff.task for diff in tasks}
    for task_id, fields in home.tasks.items():
        if task_id not in kept:
            tasks.append(TaskDiff(task=task_id, effect=TaskEffect.ENDS, before=fields["outputs"]))
    declared = {query.name: query for query in catalog.queries.values() if query.continuous}
    gone = {one.name for one in stored.catalog.queries.values()} - declared.keys()
    return CatalogDiff(
        catalog=catalog,
        plan=plan,
        replacing=replacing,
        tasks=tasks,
        created={name: to_arrow(one.schema) for name, one in declared.items() if name not in home.logs},
        dropped=sorted(name for name in gone if name in home.logs),
    )
