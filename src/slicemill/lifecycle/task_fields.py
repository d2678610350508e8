"""Changes of the journal fields of a task when queries are added to the task or removed from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from slicemill.catalog.catalog import QueryDefinition, Stream
from slicemill.columns.arrow_schema import to_arrow, without_defaults
from slicemill.errors import SlicemillError
from slicemill.ingest.watermarks import newest_tuple
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.slices.coverage import admit_queries, members_behind
from slicemill.operators.specs import Source
from slicemill.plan.history import history_us
from slicemill.plan.overlapping_joins import RunningJoinState, TaskAssignments, join_keys_of, logs_read
from slicemill.plan.placement import Placement, PlacementKind, needs_match_flags, restore_placement
from slicemill.plan.state_reuse import (
    names_of_state,
    parts_taken,
    state_suffices,
    successors,
    without_outputs,
)
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.streams import RunningStream, logs_of
from slicemill.runtime.tasks import RunningTask
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.storage.home_state import SINCE_CHECKPOINT, merge_fields
from slicemill.time import BEGINNING, END

# Journal field of a task: logs of its stored queries that are not declared again after a start.
LEFT_OUT = "left_out"
# Journal fields of a task that are removed when the task loses its state.
_OF_STATE = frozenset(("begun", "due", "failed", "resumable", *SINCE_CHECKPOINT, "latest", "heavy"))


def new_fields(plan: TaskPlan, home: Home) -> dict[str, Any]:
    """Return the journal fields of a new task, which reads only rows that arrive from now on.

    A changelog is read from its base, the table that its oldest changes were folded into.
    """
    cursors = _start_cursors(plan.task.inputs, home)
    return {
        "placement": Placement.of(plan.exchanges).plain(),
        "joined_on": join_keys_of(plan.task, plan.graph),
        "cursors": cursors,
        "outputs": _output_logs(plan),
        "since": {log: newest_ts(logs, home) for log, logs in logs_read(plan.task, plan.graph).items()},
        "input_watermarks": {},
        "output_watermarks": {},
        "checkpoint": {"cursors": cursors, "input_watermarks": {}, "files": []},
        "checkpoint_before": None,
    }


def without_state(before: RunningTask | None) -> dict[str, Any]:
    """Map the journal fields that a task loses when it restarts without state to None."""
    return {} if before is None else dict.fromkeys(before.fields.keys() & _OF_STATE)


def keep_watermarks(task: RunningTask, streams: Mapping[str, RunningStream]) -> None:
    """Keep the watermarks of streams from falling below their watermarks before a restart.

    The watermark of a derived stream also bounds the streams that it reads, whose watermark it never exceeds.
    """
    graph, catalog = task.plan.graph, task.plan.catalog
    for log, ts in task.input_watermarks().items():
        behind = graph.ancestors(graph.streams.get(log, log))
        for node in graph:
            if node.id in behind and isinstance(node.operator, Source):
                name = node.operator.stream
                streams[catalog.declared_stream(name).name].announce_at_least(name, ts)


def without_new_queries(plan: TaskPlan, known: Collection[str]) -> TaskPlan:
    """Return the plan of a task without its new queries, for rows that arrived before these queries."""
    new = [log for log in _output_logs(plan) if log not in known]
    task, graph = without_outputs(plan.task, plan.graph, new)
    return replace(plan, task=task, graph=graph)


def fields_with_queries(
    plan: TaskPlan,
    before: RunningTask,
    home: Home,
    anew: Collection[str] = (),
    replaced: Collection[str] = (),
    passed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the changed journal fields of a task that gets the queries of a new plan.

    The task has read all epochs of its inputs, or `passed` has the fields that skip the unread epochs
    (`fields_without_pending`). New
    queries and queries of `anew` read only rows that arrive from now on. New joins also get stored rows of
    other joins in the task, where these rows suffice (S23). A query of `replaced` keeps state whose content
    name is still in use, and takes over other state that has all rows it needs. If no state is missing, its
    results stay as complete as before.
    """
    graph, written, read = plan.graph, _output_logs(plan), logs_read(plan.task, plan.graph)
    fields = {**before.fields, **(passed or {})}
    held = {
        name
        for name in _state_names(before.plan, [log for log in replaced if log not in anew])
        if state_suffices(before.plan.graph, graph, name)
    }
    roots = {log: root for root, log in plan.task.outputs}
    taken: dict[str, str] = {}
    parts: dict[str, list[int]] = {}
    for log in roots.keys() & {log for _, log in before.plan.task.outputs} & set(replaced) - set(anew):
        was, now = _state_names(before.plan, [log]), names_of_state(graph, plan.task, roots[log])
        heirs = successors(before.plan.graph, graph, was, now)
        taken |= heirs
        parts |= parts_taken(before.plan.graph, graph, heirs)
    held |= taken.keys()

    def fresh(log: str) -> list[str]:
        return [name for name in names_of_state(graph, plan.task, roots[log]) if name not in held]

    known = {
        log: ts
        for log, ts in before.since.items()
        if log not in anew and not (log in replaced and log in roots and fresh(log))
    }
    failed = {log: why for log, why in before.failed.items() if log in written and log not in anew}
    new = frozenset(written).difference(known)
    if new and reads_changes(plan, home):
        # A task that reads a changelog has one query, so the old state of the task is not needed any more.
        return {
            **without_state(before),
            **new_fields(plan, home),
            "output_watermarks": before.fields["output_watermarks"],
        }
    since = {log: known[log] if log in known else newest_ts(read[log], home) for log in written}
    for log in new:
        let_go = _eviction_time(before, read[log])
        if BEGINNING < let_go < END:
            since[log] = max(since[log] or let_go, let_go)
    members = {log: [one for one in members_behind(graph, roots[log]) if one.name not in held] for log in new}
    if any(members.values()):
        members |= {log: list(members_behind(graph, roots[log])) for log in written if log not in new}
    served, since = admit_queries(members, new, {}, since)
    alone = {name: (None, None) for log in new for name in fresh(log)}
    # A join that is added to the task or removed from it may change the inputs of the task.
    inputs, checkpoint = plan.task.inputs, fields["checkpoint"]
    cursors = {log: fields["cursors"].get(log, home.logs[log].head) for log in inputs}
    kept = {log: checkpoint["cursors"].get(log, cursors[log]) for log in inputs}
    marks = {log: ts for log, ts in before.input_watermarks().items() if log in inputs}
    return {
        "placement": Placement.of(plan.exchanges).plain(),
        "joined_on": join_keys_of(plan.task, graph, before.fields.get("joined_on")),
        "cursors": cursors,
        "checkpoint": {**checkpoint, "cursors": kept},
        # A replay of rows from the previous checkpoint would need the previous plan.
        "checkpoint_before": None,
        "input_watermarks": marks,
        # Results that waited for a log which the task no longer reads belong to a removed query.
        "due": [due for due in fields.get("due") or () if due.keys() <= set(inputs)] or None,
        # New queries emit their initial results before the first tuple.
        "begun": None,
        "outputs": written,
        "since": since,
        "newcomers": {**alone, **served} or None,
        "successors": taken or None,
        "parts_taken": parts or None,
        "failed": failed or None,
        "resumable": [log for log in fields.get("resumable") or () if log in failed] or None,
        "output_watermarks": {
            log: ts for log, ts in before.fields["output_watermarks"].items() if log in written
        },
    }


def _state_names(plan: TaskPlan, logs: Collection[str]) -> set[str]:
    """Return the content names of the operator states that a task stores for the queries of some logs."""
    return {
        name
        for root, log in plan.task.outputs
        if log in logs
        for name in names_of_state(plan.graph, plan.task, root)
    }


def reads_changes(plan: TaskPlan, home: Home) -> bool:
    """Return True for a task that reads a changelog.

    No query is ever added to such a task (`plan.tasks`).
    """
    return any(home.logs[log].changes for log in plan.task.inputs)


def _start_cursors(logs: Iterable[str], home: Home) -> dict[str, int]:
    """Map each input log to the last epoch that a new reader skips.

    The number is -1 for a changelog, which is read from its base.
    """
    return {log: -1 if home.logs[log].changes else home.logs[log].head for log in logs}


def fields_without_pending(task: RunningTask, home: Home) -> dict[str, Any]:
    """Return the journal fields with which a task skips its pending input and drops its state.

    All queries of the task have failed.
    """
    heads = {log: home.logs[log].head for log in task.plan.task.inputs}
    marks = task.input_watermarks()
    checkpoint = {"cursors": heads, "input_watermarks": marks, "files": []}
    gone = dict.fromkeys(("begun", "checkpoint_before", "due", "resumable", *SINCE_CHECKPOINT))
    return {"cursors": heads, "checkpoint": checkpoint, **gone}


def redistribution_fields(
    plan: TaskPlan, before: RunningTask, checkpoint: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the journal fields of a task whose state has to move to other subtasks, or {}.

    The state has to move if the new plan partitions rows differently, or does not allow heavy keys. A heavy
    key has so many rows that they are spread over subtasks. `runtime.rescale` moves the state.
    """
    was, now = Placement.of(before.plan.exchanges), Placement.of(plan.exchanges)
    heavy = before.fields.get("heavy") or []
    if was.spreads_like(now) and not (heavy and needs_match_flags(plan.task, plan.graph)):
        return {}
    return {"heavy": None, "checkpoint": {"placement": was.plain(), "heavy": heavy, **checkpoint}}


def moved_at_start(plan: TaskPlan, home: Home) -> dict[str, Any]:
    """Return the journal fields of a stored task whose plan partitions rows by other keys than before.

    Return {} if the partitioning is unchanged. Rows after the checkpoint are replayed with the new
    partitioning.
    """
    fields = home.tasks[plan.task.id]
    was = restore_placement(plan.task, plan.graph, fields["placement"])
    if was is not None and was.exchanges == plan.exchanges:
        return {}
    heavy = fields.get("heavy") or []
    return {
        "placement": Placement.of(plan.exchanges).plain(),
        "heavy": None,
        "checkpoint": {"placement": fields["placement"], "heavy": heavy, **fields["checkpoint"]},
        "checkpoint_before": None,  # the previous checkpoint has the old partitioning
    }


def missing_logs(
    streams: Iterable[Stream],
    queries: Iterable[QueryDefinition],
    home: Home,
    replaced: Collection[str] = (),
) -> dict[str, pa.Schema]:
    """Return the name and columns of each log that has to be created for streams and queries.

    Raises if an existing log has other columns. Logs in `replaced` may change their columns.
    """
    logs = {name: columns for stream in streams for name, columns in logs_of(stream).values()}
    logs |= {query.name: to_arrow(query.schema) for query in queries}
    for name, columns in logs.items():
        known = home.logs.get(name)
        if (
            known is not None
            and name not in replaced
            and not without_defaults(known.columns).equals(columns, check_metadata=True)
        ):
            raise SlicemillError(
                f"{name} is kept in {home.folder} with other columns; give the new one another name"
            )
    return {name: columns for name, columns in logs.items() if name not in home.logs}


def without_logs(names: Collection[str], home: Home, change: Change) -> Change:
    """Return a change that also drops logs and removes these logs from the journal fields of tasks."""
    gone = [name for name in names if name in home.logs]
    dropped_tasks, tasks = list(change.dropped_tasks), dict(change.tasks)
    for task, known in home.tasks.items() if gone else ():
        fields = merge_fields(known, tasks.get(task, {}))
        if task in dropped_tasks:
            continue
        if fields.get("outputs") and set(fields["outputs"]) <= set(gone):
            dropped_tasks.append(task)
            tasks.pop(task, None)
            continue
        changed: dict[str, Any] = {
            by_log: {log: at for log, at in fields[by_log].items() if log not in gone}
            for by_log in ("since", "failed", "output_watermarks")
            if not fields.get(by_log, {}).keys().isdisjoint(gone)
        }
        for field_name in ("outputs", LEFT_OUT):
            if not set(fields.get(field_name, ())).isdisjoint(gone):
                changed[field_name] = without_names(fields[field_name], gone)
        if changed:
            tasks[task] = {**tasks.get(task, {}), **changed}
    return replace(
        change, dropped_logs=[*change.dropped_logs, *gone], dropped_tasks=dropped_tasks, tasks=tasks
    )


def without_names(names: Collection[str], gone: Collection[str]) -> list[str] | None:
    """Return a list without some names, or None if no name is left."""
    return [name for name in names if name not in gone] or None


def _output_logs(plan: TaskPlan) -> list[str]:
    return sorted(log for _, log in plan.task.outputs)


def _eviction_time(before: RunningTask, logs: Collection[str]) -> int:
    """Return the time up to which a task has evicted rows of some input logs from its state.

    Eviction follows the watermark of the last run, which may be later than the last row. A row is kept until
    the watermark of every query that reads its input has passed it.
    """
    marks, passed = before.input_watermarks(), BEGINNING
    together = {before.reads(log) for _, log in before.plan.task.outputs}
    read = [own for own in together if all(log in marks for log in own)]
    for log in logs:
        reached = [min(marks[one] for one in own) for own in read if log in own]
        passed = max([passed, *([min(reached)] if reached else [])])
    return passed


def newest_ts(logs: Collection[str], home: Home) -> int | None:
    """Return the greatest timestamp of all rows that have arrived in some input logs.

    A query that is added now reads all later rows. Arrived rows that no query needed are not in the log, but
    count too. A changelog does not count, because it is read from its beginning.
    """
    newest = [home.logs[log].max_ts for log in logs if not home.logs[log].changes]
    newest += [newest_tuple(home.streams[log]) for log in logs if log in home.streams]
    return max((ts for ts in newest if ts is not None), default=None)


def query_placements(tasks: Mapping[str, Mapping[str, Any]]) -> TaskAssignments:
    """Return the task that writes each log, and the join state of each task that new joins can share."""
    task_of = {
        log: task for task, fields in tasks.items() for log in (*fields["outputs"], *fields.get(LEFT_OUT, ()))
    }
    open_kinds = (PlacementKind.ONE.value, PlacementKind.KEY.value)
    states = {
        task: RunningJoinState(fields["joined_on"], fields["placement"]["kind"] in open_kinds)
        for task, fields in tasks.items()
        if fields.get("joined_on")
    }
    return TaskAssignments(task_of, states)


def complete_from_of(query: str, graph: QueryGraph, tasks: Iterable[RunningTask]) -> int | None:
    """Return the timestamp from which the results of a query are complete, or None if unknown."""
    tasks = list(tasks)
    task = next((one for one in tasks if query in one.since), None)
    if task is None:
        return None
    since = task.since[query]
    # `since` is None if no row had arrived before the query was created.
    latest = BEGINNING if since is None else since
    for log in task.reads(query):
        if graph[graph.streams.get(log, log)].schema.changelog:
            # The query is as complete as the table that it reads.
            table = complete_from_of(log, graph, tasks)
            if table is None:
                return None
            latest = max(latest, table)
    history = 0 if latest == BEGINNING else history_us(graph, graph.streams.get(query, query))
    return None if history is None else latest + history
