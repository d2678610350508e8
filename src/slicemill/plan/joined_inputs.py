"""What a unit joins: the logs whose rows meet in its results, and which of their keys are equal there.

    a ─┐                                        inputs    a, b, c: one row of each is in every result
    b ─┴─ ⋈ a.x = b.x ─┐
    c ─────────────────┴─ ⋈ b.y = c.y ─ π       classes   {a.x, b.x}, {b.y, c.y}

A log that is joined with itself is two inputs. Whoever decides in which cells rows meet (`placement`) needs
no more than this: whatever the joins are, a result has one row of each input, and these agree in each class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, transform
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import InnerJoin, Keys
from slicemill.operators.registry import kind_of
from slicemill.plan.logs import log_of
from slicemill.plan.units import Unit

# An input is known by the join that takes it, and the port there.
_Place: TypeAlias = tuple[str, int]
_Key: TypeAlias = tuple[_Place, Expr]


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """A log that is joined, over which window, and the join that it comes to, by its id and port."""

    log: str
    window: Window
    join: str
    port: int


@dataclass(frozen=True, slots=True)
class KeyClass:
    """What is equal in the rows of a result: by input, which is a number, its expressions in one order."""

    keys: Mapping[int, Keys]

    def of_logs(self, inputs: tuple[JoinedInput, ...]) -> dict[str, Keys]:
        """The logs whose rows can be spread by these keys: also of one that is joined with itself."""
        found: dict[str, Keys] = {}
        for log in {joined.log for joined in inputs}:
            own = {self.keys.get(number) for number, joined in enumerate(inputs) if joined.log == log}
            if len(own) == 1 and (keys := own.pop()) is not None:
                found[log] = keys
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class JoinedInputs:
    """All that a unit joins, in the order of its joins; it does nothing else that keeps state."""

    inputs: tuple[JoinedInput, ...]
    classes: tuple[KeyClass, ...]

    @property
    def counts_rows(self) -> bool:
        """Is there a window that holds so many rows, whatever their keys are?"""
        return any(joined.window.frame is FrameUnit.ROWS for joined in self.inputs)


def joined_inputs(unit: Unit, graph: QueryGraph) -> JoinedInputs | None:
    """What a unit joins; None if it does something else, or keeps something behind its joins."""
    if any(kind_of(graph[node_id].operator).joins is None for node_id in unit.stateful_nodes):
        return None
    tops = {_joined_in(graph, node_id) for node_id, _ in unit.outputs}
    top = tops.pop() if len(tops) == 1 else None
    if top is None:
        return None
    inputs: dict[_Place, JoinedInput] = {}
    equal: list[list[_Key]] = []
    for node, join in _joins(graph, top):
        for port, source in enumerate(node.inputs):
            log = _log_below(graph, source)
            if log is not None:
                inputs[node.id, port] = JoinedInput(log, join.windows[port], node.id, port)
        for together in join.equal:
            keys = [_origin(graph, (node.id, port), key) for port, key in together]
            equal.append([key for key in keys if key is not None])
    return JoinedInputs(tuple(inputs.values()), tuple(_classes(list(inputs), equal)))


def _joined_in(graph: QueryGraph, node_id: str) -> str | None:
    """The join whose results a node lets pass; None if it lets a log's rows pass, or those of several."""
    node = graph[node_id]
    while (kind := kind_of(node.operator)).joins is None:
        below = kind.fed_by(node.operator, node, graph)
        if kind.keeps_state or len(below) != 1:
            return None
        node = graph[below[0]]
        if log_of(node, graph) is not None:
            return None
    return node.id


def _log_below(graph: QueryGraph, node_id: str) -> str | None:
    """The log whose rows come to a node; None where those of a join do."""
    node = graph[node_id]
    while (log := log_of(node, graph)) is None:
        kind = kind_of(node.operator)
        if kind.joins is not None:
            return None
        (below,) = kind.fed_by(node.operator, node, graph)
        node = graph[below]
    return log


def _joins(graph: QueryGraph, top: str) -> Iterator[tuple[Node, InnerJoin]]:
    """A join and those that feed it, these first."""
    node = graph[top]
    for source in node.inputs:
        if _log_below(graph, source) is None:
            below = _joined_in(graph, source)
            assert below is not None, "what feeds a join and is no log is a join"
            yield from _joins(graph, below)
    joins = kind_of(node.operator).joins
    assert joins is not None
    yield node, joins(node.operator)


def _origin(graph: QueryGraph, place: _Place, key: Expr) -> _Key | None:
    """A key over an input of a join as one over the log that it is of."""
    node = graph[graph[place[0]].inputs[place[1]]]
    while log_of(node, graph) is None:
        kind = kind_of(node.operator)
        if kind.joins is not None:
            columns = kind.joins(node.operator).columns
            ports = {columns[name][0] if name in columns else None for name in columns_of(key)}
            port = ports.pop() if len(ports) == 1 else None
            if port is None:
                return None
            return _origin(graph, (node.id, port), _renamed(key, columns))
        below = kind.keys_below(node.operator, node, graph, (key,))
        if below is None or len(below) != 1:
            return None
        ((source, (key,)),) = below
        node = graph[source]
    return place, key


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
    by_inputs: dict[frozenset[int], list[dict[int, Expr]]] = {}
    for together in merged:
        own: dict[int, Expr] = {}
        for place, key in sorted(together, key=lambda one: render(one[1]), reverse=True):
            own[places.index(place)] = key
        if len(own) > 1:
            by_inputs.setdefault(frozenset(own), []).append(own)
    for numbers, found in by_inputs.items():
        found.sort(key=lambda own: [render(own[number]) for number in sorted(own)])
        yield KeyClass({number: tuple(own[number] for own in found) for number in sorted(numbers)})
