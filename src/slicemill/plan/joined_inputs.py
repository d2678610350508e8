"""What a unit joins: the logs whose rows meet in its results, and which of their keys are equal there.

    a ─┐                                        inputs    a, b, c: one row of each is in every result
    b ─┴─ ⋈ a.x = b.x ─┐
    c ─────────────────┴─ ⋈ b.y = c.y ─ π       classes   {a.x, b.x}, {b.y, c.y}

A log that is joined with itself is two inputs. An input may also be computed from logs, by what keeps state:
each cell that gets all rows of these computes the same. Whoever decides in which cells rows meet
(`placement`) needs no more than this: whatever the joins are, a result has one row of each input, and these
agree in each class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, transform
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import InOrder
from slicemill.operators.kind import InnerJoin, Keys
from slicemill.operators.registry import kind_of
from slicemill.plan.logs import log_of
from slicemill.plan.units import Unit

# An input is known by the join that takes it, and the port there; its key may not be one of its log.
_Place: TypeAlias = tuple[str, int]
_Key: TypeAlias = tuple[_Place, Expr, bool]


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """What is joined, over which window, and the join that it comes to, by its id and port.

    It has a row for each row of its log that selections and look-ups let pass; or it is `computed`, from one
    log or several.
    """

    logs: tuple[str, ...]
    computed: bool
    window: Window
    join: str
    port: int


@dataclass(frozen=True, slots=True)
class KeyClass:
    """What is equal in the rows of a result: by input, which is a number, its expressions in one order.

    None for an input whose log does not have these keys.
    """

    keys: Mapping[int, Keys | None]

    def of_logs(self, inputs: Sequence[JoinedInput]) -> dict[str, Keys]:
        """The logs whose rows can be spread by these keys: they are joined on them wherever they are."""
        found: dict[str, Keys] = {}
        for log in sorted({log for one in inputs for log in one.logs}):
            own = {self.keys.get(number) for number, one in enumerate(inputs) if log in one.logs}
            keys = own.pop() if len(own) == 1 else None
            if keys is not None:
                found[log] = keys
        return found


@dataclass(frozen=True, slots=True)
class JoinedInputs:
    """All that a unit joins, in the order of its joins; behind them it keeps nothing."""

    inputs: tuple[JoinedInput, ...]
    classes: tuple[KeyClass, ...]

    @property
    def counts_rows(self) -> bool:
        """Is there a window that holds so many rows, whatever their keys are?"""
        return any(joined.window.frame is FrameUnit.ROWS for joined in self.inputs)


def joined_inputs(unit: Unit, graph: QueryGraph) -> JoinedInputs | None:
    """What a unit joins; None if it does something else, or if its results are not those of one join.

    They are if they come out of one, or out of joins that follow each other and are put in order at the end.
    """
    tops = {_joined_in(graph, node_id) for node_id, _ in unit.outputs}
    top = tops.pop() if len(tops) == 1 else None
    stateful = [graph[node_id].operator for node_id in unit.stateful_nodes]
    if top is None or not all(kind_of(operator).computes for operator in stateful):
        return None
    joins = list(_joins(graph, top))
    ordered = any(isinstance(reader.operator, InOrder) for reader in graph.consumers(top))
    all_of_them = sum(_is_join(graph[node_id]) for node_id in unit.stateful_nodes)
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


def _joined_in(graph: QueryGraph, node_id: str) -> str | None:
    """The join whose results come out of a node, one by one; None if others do."""
    node = graph[node_id]
    while not _is_join(node):
        kind = kind_of(node.operator)
        if kind.keeps_state or not kind.ties or len(node.inputs) != 1:
            return None
        node = graph[node.inputs[0]]
    return node.id


def _joins(graph: QueryGraph, top: str) -> Iterator[tuple[Node, InnerJoin]]:
    """A join and those that feed it, these first."""
    node = graph[top]
    join = kind_of(node.operator).joins(node.operator)
    if join is not None:
        for source in node.inputs:
            yield from _joins(graph, source)
        yield node, join


def _logs_below(graph: QueryGraph, node_id: str) -> tuple[tuple[str, ...], bool]:
    """The logs that a node is computed from, and whether something in between keeps state."""
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
    """A key over an input of a join as one over its log, or as it is where the log does not have it.

    Where that input is a join itself, the key is of one of its own inputs, or of none.
    """
    node, own = graph[graph[place[0]].inputs[place[1]]], key
    join = kind_of(node.operator).joins(node.operator)
    if join is not None:
        columns = join.columns
        ports = {columns[name][0] if name in columns else None for name in columns_of(key)}
        port = ports.pop() if len(ports) == 1 else None
        return None if port is None else _origin(graph, (node.id, port), _renamed(key, columns))
    while log_of(node, graph) is None:
        kind = kind_of(node.operator)
        below = None if kind.keeps_state else kind.keys_below(node.operator, node, graph, (own,))
        if below is None or len(below) != 1:
            return place, key, False
        ((source, (own,)),) = below
        node = graph[source]
    return place, own, True


def _renamed(key: Expr, columns: Mapping[str, tuple[int, str]]) -> Expr:
    return transform(key, lambda e: replace(e, name=columns[e.name][1]) if isinstance(e, ColumnRef) else None)


def _classes(places: list[_Place], equal: list[list[_Key]]) -> Iterator[KeyClass]:
    """Sets of equal keys, those of the same inputs as one; an input has one key of each set."""
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
        yield KeyClass({number: _together(found, number) for number in sorted(found[0])})


def _together(found: list[dict[int, Expr | None]], number: int) -> Keys | None:
    keys = [own[number] for own in found]
    return tuple(key for key in keys if key is not None) if None not in keys else None
