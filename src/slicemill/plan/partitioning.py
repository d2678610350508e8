"""Partitioning of tasks into subtasks (parallel instances), by keys of their input logs.

The subtasks of a task form a grid with one or more dimensions. An exchange (Flink: partitioner) maps each row
of a log to a range of subtasks: it has a coordinate of the row, or all coordinates, along each dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

from slicemill.catalog.expressions import Expr
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.protocol import Keys
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.content import digest
from slicemill.plan.tasks import Task, keys_in_logs, log_of

# The number of a subtask is stored in two bytes.
MOST_SUBTASKS = 1 << 16


class Along(Enum):
    """Distribution of rows along a grid dimension that no key partitions."""

    EVERY = "broadcast to all subtasks"
    STRIPE = "round-robin by row number"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Distribution of the rows of a log over a grid of subtasks.

    Along each dimension, a row's coordinate is either a hash of its keys (expressions over the log's columns)
    or follows an `Along` rule. Subtasks are numbered in row-major order.
    """

    shape: tuple[int, ...]
    by: tuple[Keys | Along, ...]

    @property
    def subtasks(self) -> int:
        return prod(self.shape)

    @property
    def by_key(self) -> bool:
        """Return True if the keys of a row determine a single subtask."""
        return len(self.by) == 1 and not isinstance(self.by[0], Along)

    @property
    def spread(self) -> tuple[tuple[int, Keys | Along], ...]:
        """Return the number of subtasks and the rule of each grid dimension that divides the rows."""
        return tuple(
            (count, by) for count, by in zip(self.shape, self.by, strict=True) if by is not Along.EVERY
        )

    @property
    def parts(self) -> int:
        """Return the number of parts into which the rows of the log are divided.

        Several subtasks may read the same part.
        """
        return prod(count for count, _ in self.spread)

    def part_of(self, subtask: int) -> int:
        """Return the index of the part of the rows that a subtask reads."""
        part = 0
        beyond = self.subtasks
        for count, by in zip(self.shape, self.by, strict=True):
            beyond //= count
            if by is not Along.EVERY:
                part = part * count + subtask // beyond % count
        return part

    @property
    def id(self) -> str:
        """Return a digest that is equal for exchanges with equal partitioning."""
        return digest(self.spread)


@dataclass(frozen=True, slots=True)
class FormerSubtasks:
    """Grid of the subtasks that wrote a checkpoint.

    The partitioning keys are not known, because they may belong to dropped queries. State can still be moved
    to other subtasks: each stored row is in one of the subtasks that `having_each_row` returns. `spread`
    maps each log to a flag per dimension, which is True if rows were divided along it.
    """

    shape: tuple[int, ...]
    spread: Mapping[str, tuple[bool, ...]]

    @property
    def by_time(self) -> bool:
        """Return True if all subtasks read all rows, as in a placement by time."""
        return bool(self.spread) and not any(map(any, self.spread.values()))

    def having_each_row(self, logs: Iterable[str]) -> tuple[int, ...]:
        """Return subtasks that together store each row of these logs once.

        A row joined from several logs is stored in the subtasks that have all its input rows.
        """
        known = [self.spread[log] for log in logs if log in self.spread]
        if not known:
            return (0,)
        rules = (Along.STRIPE if any(along) else Along.EVERY for along in zip(*known, strict=True))
        joined = Exchange(self.shape, tuple(rules))
        first = {joined.part_of(subtask): subtask for subtask in reversed(range(joined.subtasks))}
        return tuple(sorted(first.values()))


def by_time(task: Task, graph: QueryGraph, subtasks: int) -> dict[str, Exchange]:
    """Return exchanges that send all rows to all subtasks, each of which stores every n-th row.

    This placement "by time" requires that the task has one join and that each result row is made from one row
    of that join. Each subtask computes the inputs of the join. The result is empty if the task does not allow
    it (ring of PSP-D, S33).
    """
    found = {join for output, _ in task.outputs for join in _emitting_operators(graph, output)}
    joins = [node_id for node_id in task.nodes if isinstance(graph[node_id].operator, SharedJoin)]
    if len(joins) != 1 or found != set(joins):
        return {}
    return dict.fromkeys(task.inputs, Exchange((subtasks,), (Along.EVERY,)))


def may_spread_keys(task: Task, graph: QueryGraph, keyed: Mapping[str, Exchange]) -> bool:
    """Return True if the rows of heavy keys may go to all subtasks of the task.

    See `operators.join.heavy_keys`. The exchange keys must be all keys of the join, so that both use the same
    hash.
    """
    lengths = {len(by) for exchange in keyed.values() for by in exchange.by if not isinstance(by, Along)}
    joins = (join for node_id in task.nodes if isinstance(join := graph[node_id].operator, SharedJoin))
    return bool(keyed) and all(lengths == {len(join.keys[0])} for join in joins)


def _emitting_operators(graph: QueryGraph, node_id: str) -> set[str | None]:
    """Return the stateful operators whose rows a node forwards.

    None stands for an operator that makes new rows.
    """
    operator = graph[node_id].operator
    kind = kind_of(operator)
    if kind.keeps_state or not kind.ties:
        return {node_id if kind.ties else None}
    return {found for source in graph[node_id].inputs for found in _emitting_operators(graph, source)}


def by_key(task: Task, graph: QueryGraph, subtasks: int) -> dict[str, Exchange]:
    """Return exchanges that partition the input logs of a task by key, or nothing if impossible.

    Partitioning requires that all state of the task is keyed by expressions over its logs' columns, with one
    set of keys per log, and that each result depends on such state.
    """
    computing = _key_restricting_nodes(task, graph)
    ids = {node.id for node in computing}
    if not all(ids & graph.ancestors(node_id) for node_id, _ in task.outputs):
        return {}
    by_node = [_keys_of_logs(node, graph) for node in computing]
    found: dict[str, Keys] = {}
    for wanted in sorted(by_node, key=_number_of_keys):
        known = next((log for log in wanted if log in found), None)
        if known is not None and set(found[known]) <= set(wanted[known]):
            # Rows with equal keys also agree on a subset of the keys, so the subset can partition the rows.
            order = [wanted[known].index(key) for key in found[known]]
            wanted = {log: tuple(keys[index] for index in order) for log, keys in wanted.items()}
        if not wanted or any(found.setdefault(log, keys) != keys for log, keys in wanted.items()):
            return {}
    if found.keys() != set(task.inputs):
        return {}
    return {log: Exchange((subtasks,), (keys,)) for log, keys in found.items()}


def _keys_of_logs(node: Node, graph: QueryGraph) -> dict[str, Keys]:
    """Return for each input log the keys of a node that are expressions over the log."""
    found: dict[str, Keys] = {}
    for together in zip(*(partition_keys(node.operator) or ()), strict=True):
        in_logs = _in_logs(graph, zip(node.inputs, together, strict=True))
        found |= {log: (*found.get(log, ()), key) for log, key in in_logs.items()}
    return found


def logs_behind(node: Node, port: int, graph: QueryGraph) -> set[str]:
    """Return the logs upstream of one input of a node."""
    logs = (log_of(graph[node_id], graph) for node_id in graph.ancestors(node.inputs[port]))
    return {log for log in logs if log is not None}


def exchange_at(
    node: Node, port: int, graph: QueryGraph, exchanges: Mapping[str, Exchange]
) -> Exchange | None:
    """Return the exchange that partitions one input of a node, with the keys of that input.

    The result is None for a single subtask. Raises ValueError if the node lacks the keys of the exchange.
    """
    source = graph[node.inputs[port]]
    behind = logs_behind(node, port, graph)
    kind = kind_of(node.operator)
    keys = list((partition_keys(node.operator) or {port: ()})[port])
    joined = None if kind.joins is None else kind.joins(node.operator)
    if joined is not None:
        keys += [key for equal in joined.equal for of, key in equal if of == port]
    below = {key: keys_in_logs(graph, source, (key,)) or {} for key in keys}

    def own(log: str, wanted: Expr) -> Expr:
        for key, in_logs in below.items():
            if in_logs.get(log) == (wanted,):
                return key
        raise ValueError(f"{node.id} does not have the key that partitions its rows")

    found = {
        Exchange(
            exchange.shape,
            tuple(by if isinstance(by, Along) else tuple(own(log, key) for key in by) for by in exchange.by),
        )
        for log, exchange in exchanges.items()
        if log in behind
    }
    if len(found) > 1:
        raise ValueError(f"the input rows of {node.id} are made from logs with different partitioning")
    return next(iter(found), None)


def _in_logs(graph: QueryGraph, keys: Iterable[tuple[str, Expr]]) -> dict[str, Expr]:
    """Return the expression over each log that computes a key, which several nodes have in common.

    The result is empty if a log would have two different expressions.
    """
    found: dict[str, Expr] = {}
    for source, key in keys:
        below = keys_in_logs(graph, graph[source], (key,))
        if below is None or any(found.setdefault(log, own) != own for log, (own,) in below.items()):
            return {}
    return found


def _number_of_keys(by_log: Mapping[str, Keys]) -> int:
    return max(map(len, by_log.values()), default=0)


def exchanges_by_log(readers: Iterable[Mapping[str, Exchange]]) -> dict[str, tuple[Exchange, ...]]:
    """Return the distinct exchanges by which tasks read each log."""
    found: dict[str, dict[Exchange, None]] = {}
    for exchanges in readers:
        for log, exchange in exchanges.items():
            found.setdefault(log, {})[exchange] = None
    return {log: tuple(by) for log, by in found.items()}


def _key_restricting_nodes(task: Task, graph: QueryGraph) -> list[Node]:
    """Return the stateful nodes of a task that restrict its partitioning keys.

    A drop box (load shedding operator) is not included, because it can be partitioned by any key.
    """
    found = []
    for node in (graph[node_id] for node_id in task.stateful_nodes):
        kind = kind_of(node.operator)
        if kind.computes and not kind.split_by_any(node.operator, node, graph):
            found.append(node)
    return found
