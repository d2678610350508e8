"""Join structure of a task: the inputs of its joins, and classes of equal keys.

    a ─┐                                        inputs    a, b, c: one row of each is in every result
    b ─┴─ ⋈ a.x = b.x ─┐
    c ─────────────────┴─ ⋈ b.y = c.y ─ π       classes   {a.x, b.x}, {b.y, c.y}

A log that is joined with itself is two inputs. An input can also be the output of a stateful operator. Each
subtask that reads all rows of its logs then computes the same input.

A result has one row of each input, and these rows agree in each class. The choice of a placement
(`plan.placement`) needs no other information.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, transform
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.functions.render import render
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import InOrder
from slicemill.operators.protocol import InnerJoin, Keys
from slicemill.operators.registry import kind_of
from slicemill.plan.tasks import Task, log_of

# input of a join, as (id of the join node, port)
_Place: TypeAlias = tuple[str, int]
# join key, as (join input, expression, True if the expression reads columns of a log)
_Key: TypeAlias = tuple[_Place, Expr, bool]


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """Input of a join, identified by join id and port.

    If `computed` is False, the input has one row for each row of its log that passes filters and look-ups. If
    it is True, a stateful operator computes the input from one or several logs.
    """

    logs: tuple[str, ...]
    computed: bool
    window: Window
    join: str
    port: int


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Keys of several join inputs whose values are equal in every result, by input number.

    The value is None for an input whose log does not have these keys.
    """

    keys: Mapping[int, Keys | None]

    def of_logs(self, inputs: Sequence[JoinedInput]) -> dict[str, Keys]:
        """Map each log that can be partitioned by the keys of this class to its keys.

        A log with several inputs must have the same keys in all of them.
        """
        found: dict[str, Keys] = {}
        for log in sorted({log for one in inputs for log in one.logs}):
            own = {self.keys.get(number) for number, one in enumerate(inputs) if log in one.logs}
            keys = own.pop() if len(own) == 1 else None
            if keys is not None:
                found[log] = keys
        return found


@dataclass(frozen=True, slots=True)
class JoinedInputs:
    """Inputs of a task's joins in join order, and their key classes.

    No stateful operator follows the joins.
    """

    inputs: tuple[JoinedInput, ...]
    classes: tuple[KeyClass, ...]

    @property
    def counts_rows(self) -> bool:
        """Return True if an input of the joins has a window that counts rows (ROWS).

        A ROWS window counts the rows of all keys, so a grid of subtasks cannot compute it.
        """
        return any(joined.window.frame is FrameUnit.ROWS for joined in self.inputs)


def join_inputs_of(task: Task, graph: QueryGraph) -> JoinedInputs | None:
    """Return the inputs and key classes of a task's joins, or None.

    The result is None if the task has other stateful operators. It is also None unless all results come from
    one join, or from one chain of joins that ends with an ordering node.
    """
    tops = {_source_join(graph, node_id) for node_id, _ in task.outputs}
    top = tops.pop() if len(tops) == 1 else None
    stateful = [graph[node_id].operator for node_id in task.stateful_nodes]
    if top is None or not all(kind_of(operator).computes for operator in stateful):
        return None
    joins = list(_joins(graph, top))
    ordered = any(isinstance(reader.operator, InOrder) for reader in graph.consumers(top))
    all_of_them = sum(_is_join(graph[node_id]) for node_id in task.stateful_nodes)
    if len(joins) != all_of_them or (len(joins) > 1 and not ordered):
        return None
    inputs: dict[_Place, JoinedInput] = {}
    equal: list[list[_Key]] = []
    for node, join in joins:
        for port, source in enumerate(node.inputs):
            if not _is_join(graph[source]):
                logs, computed = _logs_below(graph, source)
                inputs[node.id, port] = JoinedInput(logs, computed, join.windows[port], node.id, port)
        for together in join.equal:
            keys = [_origin(graph, (node.id, port), key) for port, key in together]
            equal.append([key for key in keys if key is not None])
    return JoinedInputs(tuple(inputs.values()), tuple(_classes(list(inputs), equal)))


def _is_join(node: Node) -> bool:
    return kind_of(node.operator).joins(node.operator) is not None


def _source_join(graph: QueryGraph, node_id: str) -> str | None:
    """Return the id of the join whose results a graph node forwards, or None."""
    node = graph[node_id]
    while not _is_join(node):
        kind = kind_of(node.operator)
        if kind.keeps_state or not kind.ties or len(node.inputs) != 1:
            return None
        node = graph[node.inputs[0]]
    return node.id


def _joins(graph: QueryGraph, top: str) -> Iterator[tuple[Node, InnerJoin]]:
    """Yield join `top` and all joins from which it reads, upstream joins first."""
    node = graph[top]
    join = kind_of(node.operator).joins(node.operator)
    if join is not None:
        for source in node.inputs:
            yield from _joins(graph, source)
        yield node, join


def _logs_below(graph: QueryGraph, node_id: str) -> tuple[tuple[str, ...], bool]:
    """Return the logs that a graph node reads, and True if its rows are not rows of a single log.

    The second result is True if a stateful operator computes the rows, or if they come from several logs.
    """
    found: dict[str, None] = {}
    computed = False
    waiting = [node_id]
    while waiting:
        node = graph[waiting.pop()]
        log = log_of(node, graph)
        if log is not None:
            found[log] = None
        else:
            computed |= kind_of(node.operator).keeps_state
            waiting.extend(node.inputs)
    return tuple(sorted(found)), computed or len(found) != 1


def _origin(graph: QueryGraph, place: _Place, key: Expr) -> _Key | None:
    """Trace a key of a join input back to the log that the input reads.

    The returned key is in columns of the log. A key that the log does not have is returned unchanged. If the
    input is itself a join, the key is traced to one of that join's inputs. The result is None if the key uses
    columns of several inputs.
    """
    node, own = graph[graph[place[0]].inputs[place[1]]], key
    join = kind_of(node.operator).joins(node.operator)
    if join is not None:
        columns = join.columns
        ports = {columns[name][0] if name in columns else None for name in columns_of(key)}
        port = ports.pop() if len(ports) == 1 else None
        return None if port is None else _origin(graph, (node.id, port), _rename_columns(key, columns))
    while log_of(node, graph) is None:
        kind = kind_of(node.operator)
        below = None if kind.keeps_state else kind.keys_below(node.operator, node, graph, (own,))
        if below is None or len(below) != 1:
            return place, key, False
        ((source, (own,)),) = below
        node = graph[source]
    return place, own, True


def _rename_columns(key: Expr, columns: Mapping[str, tuple[int, str]]) -> Expr:
    return transform(key, lambda e: replace(e, name=columns[e.name][1]) if isinstance(e, ColumnRef) else None)


def _classes(places: list[_Place], equal: list[list[_Key]]) -> Iterator[KeyClass]:
    """Merge sets of equal join keys that overlap, and yield the resulting key classes.

    Classes over the same inputs become one class.
    """
    merged: list[set[_Key]] = []
    for keys in equal:
        together = set(keys)
        apart = []
        for known in merged:
            if known & together:
                together |= known
            else:
                apart.append(known)
        merged = [*apart, together]
    by_inputs: dict[frozenset[tuple[int, bool]], list[dict[int, Expr | None]]] = {}
    for together in merged:
        own: dict[int, Expr | None] = {}
        for place, key, of_log in sorted(together, key=lambda one: (one[2], render(one[1]))):
            own[places.index(place)] = key if of_log else None
        if len(own) > 1:
            inputs = frozenset((number, key is None) for number, key in own.items())
            by_inputs.setdefault(inputs, []).append(own)
    for found in by_inputs.values():
        yield KeyClass({number: _keys_of_input(found, number) for number in sorted(found[0])})


def _keys_of_input(found: list[dict[int, Expr | None]], number: int) -> Keys | None:
    keys = [own[number] for own in found]
    return tuple(key for key in keys if key is not None) if None not in keys else None
