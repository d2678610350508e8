"""Rescale: change the number of subtasks of a running task.

All subtasks are checkpointed after the same run. Then one journal record commits the new placement (which
subtask stores a row), without heavy keys, and records the placement under which the checkpoint was written. A
new running task takes over, and each of its subtasks restores its rows from the files of all former subtasks
(`redistribute_state`). A crash before the journal record has no effect. A crash after the record is recovered
like any other crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from slicemill.errors import SlicemillError
from slicemill.extension import load
from slicemill.operators.graph import QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.operators.rescale import Dimension, InputChange, Redistribution
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.partitioning import (
    Along,
    Exchange,
    FormerSubtasks,
    exchange_at,
    exchanges_by_log,
    logs_behind,
)
from slicemill.plan.placement import Placement
from slicemill.plan.tasks import Task
from slicemill.runtime.cluster import Cluster
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.tasks import RunningTask
from slicemill.storage.changes import Change
from slicemill.storage.home import Home


@dataclass(slots=True)
class Rescaler:
    """Component that changes the number of workers, and how tasks distribute rows over subtasks."""

    home: Home
    dispatcher: Dispatcher
    mill: str
    cluster: Cluster

    def set_workers(self, count: int | None = None) -> None:
        """Change the number of workers, by default to all slots.

        Results do not change. Subtasks are rebalanced: new workers take subtasks of busy workers, and removed
        workers hand over theirs.
        """
        count = self.cluster.fix_workers(count)
        with self.dispatcher.paused():
            # After a checkpoint, no moved subtask needs to replay rows.
            self.dispatcher.checkpoint_all()
            self.dispatcher.resize(count)

    def rescale(self, task: RunningTask, placement: Placement) -> bool:
        """Change the number and the placement of a task's subtasks.

        Return False, without any change, if its state could not be checkpointed.
        """
        before = Placement.of(task.plan.exchanges)
        if placement == before:
            return True
        if not can_change(task.plan.task, task.plan.graph, placement):
            raise SlicemillError(f"{task.id} cannot change from {before} to {placement} while it runs")
        dispatcher = self.dispatcher
        with dispatcher.paused():
            dispatcher.checkpoint([task])
            if task.dirty:
                return False
            # A checkpoint from before an earlier rescale keeps the placement under which it was written.
            was = {"placement": before.plain(), "heavy": task.fields.get("heavy") or []}
            checkpoint = {**was, **task.fields["checkpoint"]}
            fields = {"placement": placement.plain(), "heavy": None, "checkpoint": checkpoint}
            # The previous checkpoint has files of the former subtasks, so it cannot be used any more.
            fields["checkpoint_before"] = None
            self.home.commit(Change(tasks={task.id: fields}))
            plan = replace(task.plan, exchanges=placement.exchanges)
            again = RunningTask(plan, self.home, self.mill, by_key_alone=task.by_key_alone)
            self._replace_task(task, again)
        return True

    def _replace_task(self, before: RunningTask, task: RunningTask) -> None:
        task.inherit_from(before)
        tasks = [task if other is before else other for other in self.dispatcher.running.tasks]
        read_by = exchanges_by_log(one.plan.exchanges for one in tasks)
        for one in tasks:
            one.read_by = read_by
        for name, stream in self.dispatcher.streams.items():
            stream.need(stream.plan.need, read_by.get(name, ()))
        self.dispatcher.replace(tasks)
        self.dispatcher.forget([task.id], ())


# When a task is rescaled, each new subtask reads the state of all former subtasks.
#
#     checkpoint of two former subtasks, read by three new subtasks:
#       subtask 0 ─┬─► subtask 0'     keeps the rows that it stores from now on
#       subtask 1 ─┤   subtask 1'     …
#                  └─► subtask 2'
#
# A task can be rescaled only if all its state consists of rows stored by joins.


def can_change(task: Task, graph: QueryGraph, after: Placement) -> bool:
    """Return True if a running task can change to another placement of its subtasks."""
    return not fixed_nodes(task, graph) and divides_state(task, graph, after)


def fixed_nodes(task: Task, graph: QueryGraph) -> list[str]:
    """Return the stateful nodes of a task whose state cannot be redistributed."""
    return [id_ for id_ in task.stateful_nodes if kind_of(graph[id_].operator).redistribute is None]


def divides_state(task: Task, graph: QueryGraph, after: Placement) -> bool:
    """Return True if a placement can divide the redistributable state of a task among its subtasks.

    Counter-example: a placement by a key that is not stored with the state.
    """
    try:
        for node_id in task.stateful_nodes:
            node = graph[node_id]
            if kind_of(node.operator).redistribute is not None:
                for port in range(len(node.inputs)):
                    exchange_at(node, port, graph, after.exchanges)
    except ValueError:
        return False
    return True


def redistribute_state(
    plan: TaskPlan,
    subtask: int,
    before: FormerSubtasks,
    heavy: tuple[HeavyKey, ...],
    kept: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """Return the state of a new subtask, taken from the checkpoints of all former subtasks."""
    found: dict[str, object] = {}
    for node_id in plan.task.stateful_nodes:
        operator, states = plan.graph[node_id].operator, [states.get(node_id) for states in kept]
        name = kind_of(operator).redistribute
        if name is not None and any(state is not None for state in states):
            inputs = _input_changes(plan, node_id, subtask, before)
            change = Redistribution(before.by_time, plan.subtask(subtask), inputs, heavy)
            found[node_id] = load(name)(operator, states, change)
    return found


def _input_changes(
    plan: TaskPlan, node_id: str, subtask: int, before: FormerSubtasks
) -> tuple[InputChange, ...]:
    node = plan.graph[node_id]
    found = []
    for port in range(len(node.inputs)):
        now = exchange_at(node, port, plan.graph, plan.exchanges)
        sources = before.having_each_row(logs_behind(node, port, plan.graph))
        found.append(InputChange(sources, () if now is None else _dimensions(now, subtask)))
    return tuple(found)


def _dimensions(exchange: Exchange, subtask: int) -> tuple[Dimension, ...]:
    """Return the dimensions of the grid in which an exchange places rows, with a subtask's coordinates.

    Dimensions along which all subtasks read the same rows are omitted.
    """
    found = []
    for along, (count, by) in enumerate(zip(exchange.shape, exchange.by, strict=True)):
        if by is not Along.EVERY:
            index = subtask // prod(exchange.shape[along + 1 :]) % count
            found.append(Dimension(count, None if isinstance(by, Along) else by, index))
    return tuple(found)
