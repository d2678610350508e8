"""Difference between the running catalog and a new one.

A change of the catalog has three steps: the new catalog is planned, its plan is compared with what runs
(`CatalogDiff`), and the difference is applied (`lifecycle.running_catalog`). The comparison changes nothing,
so its result can be printed instead of applied:

    task "sums" changes: adds hourly, drops daily
    task "alerts" starts: writes alerts
    stream readings is read
    log alerts is created
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from slicemill.catalog.catalog import Catalog, Stream
from slicemill.lifecycle.replace import NOTHING_REPLACED, Replacement
from slicemill.plan.partitioning import Exchange
from slicemill.plan.planner import Plan
from slicemill.plan.projection_pushdown import SourceProjection
from slicemill.plan.tasks import Task
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.streams import Supply
from slicemill.runtime.tasks import RunningTask


class TaskEffect(StrEnum):
    """Effect of a change of the catalog on a task."""

    CONTINUES = "continues"
    CHANGES = "changes"  # after a checkpoint, its queries, operators or tables are others
    STARTS = "starts"
    BACKFILLS = "starts in the past"
    ENDS = "ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDiff:
    """Effect on one task, with its outputs before and after the change.

    `plan` is the new plan, without table rows; None if the task ends. `running` is the task as it runs now.
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


def diff_stored_tasks(
    tasks: Iterable[Task], stored: Mapping[str, Mapping[str, Any]], backfills: Collection[str] = ()
) -> tuple[TaskDiff, ...]:
    """Compare the tasks of a plan with the tasks of a home that is not open, by their outputs."""
    found = []
    for task in tasks:
        after = sorted(log for _, log in task.outputs)
        before: list[str] = stored.get(task.id, {}).get("outputs", [])
        effect = TaskEffect.CONTINUES if before == after else TaskEffect.CHANGES
        if task.id not in stored:
            effect = TaskEffect.BACKFILLS if task.id in backfills else TaskEffect.STARTS
        found.append(TaskDiff(task=task.id, effect=effect, before=before, after=after))
    kept = {diff.task for diff in found}
    ended = {task: fields["outputs"] for task, fields in stored.items() if task not in kept}
    return (*found, *(TaskDiff(task=t, effect=TaskEffect.ENDS, before=b) for t, b in ended.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogDiff:
    """What a new catalog changes: tasks, streams, logs and sinks.

    `streams` are all streams to read. Of these, `started` are new, and `redeclared` get columns or another
    source. `moved` has the fields of streams that get another source. `needs` has the rows and columns to
    store, by stream.
    """

    catalog: Catalog
    plan: Plan
    replacing: Replacement = NOTHING_REPLACED
    tasks: Sequence[TaskDiff] = ()
    streams: Sequence[Stream] = ()
    started: Sequence[Stream] = ()
    redeclared: Sequence[Stream] = ()
    moved: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    supplies: Mapping[str, Supply] = field(default_factory=dict)  # of new and redeclared streams
    needs: Mapping[str, SourceProjection] = field(default_factory=dict)
    exchanges: Mapping[str, tuple[Exchange, ...]] = field(default_factory=dict)  # of a log's readers
    created: Mapping[str, pa.Schema] = field(default_factory=dict)  # logs of streams and queries
    dropped: Sequence[str] = ()  # logs
    replaced_sinks: Sequence[str] = ()  # of these queries
    new_sinks: Sequence[str] = ()

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
