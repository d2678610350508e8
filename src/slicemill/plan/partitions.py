"""Partitioning of units: the number of cells, and the keys of the logs that a unit reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

from slicemill.esl.types.expression import Expr
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.kind import Keys
from slicemill.operators.registry import kind_of, partition_keys
from slicemill.plan.content import digest
from slicemill.plan.log_keys import keys_in_logs
from slicemill.plan.logs import log_of
from slicemill.plan.units import Unit

# The number of a cell is stored in two bytes.
MOST_CELLS = 1 << 16


class Along(Enum):
    """How a row's coordinate along a dimension of cells is found without keys."""

    EVERY = "it goes to all of them"
    STRIPE = "by its number: one row here, the next one there"


@dataclass(frozen=True, slots=True)
class Exchange:
    """How the rows of a log are spread over cells, which form a grid of this shape.

    Along each dimension a row's coordinate goes by keys, which are expressions over the log's columns, or as
    `Along` says. A cell's number is its place in the grid, the last dimension varying fastest.
    """

    shape: tuple[int, ...]
    by: tuple[Keys | Along, ...]

    @property
    def cells(self) -> int:
        return prod(self.shape)

    @property
    def by_key(self) -> bool:
        """Does a row go to one cell, that of its keys, and to no other?"""
        return len(self.by) == 1 and not isinstance(self.by[0], Along)

    @property
    def spread(self) -> tuple[tuple[int, Keys | Along], ...]:
        """The dimensions along which rows differ: how many coordinates there are, and what they go by."""
        return tuple(
            (count, by) for count, by in zip(self.shape, self.by, strict=True) if by is not Along.EVERY
        )

    @property
    def parts(self) -> int:
        """Into how many parts the rows are divided; several cells may have the same one."""
        return prod(count for count, _ in self.spread)

    def part_of(self, cell: int) -> int:
        """Which part a cell reads."""
        part = 0
        beyond = self.cells
        for count, by in zip(self.shape, self.by, strict=True):
            beyond //= count
            if by is not Along.EVERY:
                part = part * count + cell // beyond % count
        return part

    @property
    def id(self) -> str:
        """Names it among all exchanges of a log that divide the rows in another way."""
        return digest(self.spread)


def by_time(unit: Unit, graph: QueryGraph, cells: int) -> dict[str, Exchange]:
    """All rows for all cells, each of which stores its stripe of them (PSP-D, S33); empty if that cannot be.

    It can if the unit has one join, from which all of its results come one by one, whatever is joined and on
    which condition. What the join is given is computed in each cell.
    """
    found = {join for output, _ in unit.outputs for join in _found_by(graph, output)}
    joins = [node_id for node_id in unit.nodes if isinstance(graph[node_id].operator, SharedJoin)]
    if len(joins) != 1 or found != set(joins):
        return {}
    return dict.fromkeys(unit.inputs, Exchange((cells,), (Along.EVERY,)))


def may_spread_keys(unit: Unit, graph: QueryGraph, keyed: Mapping[str, Exchange]) -> bool:
    """Can rows of heavy keys go to all cells, where the others go by their keys (`operators.join.heavy`)?

    The keys must be all those of the join, so that it knows them by the same hash.
    """
    lengths = {len(by) for exchange in keyed.values() for by in exchange.by if not isinstance(by, Along)}
    joins = (join for node_id in unit.nodes if isinstance(join := graph[node_id].operator, SharedJoin))
    return bool(keyed) and all(lengths == {len(join.keys[0])} for join in joins)


def _found_by(graph: QueryGraph, node_id: str) -> set[str | None]:
    """The operators with state whose rows are a node's, with their ties; None for one that does without."""
    operator = graph[node_id].operator
    kind = kind_of(operator)
    if kind.keeps_state or not kind.ties:
        return {node_id if kind.ties else None}
    return {found for source in graph[node_id].inputs for found in _found_by(graph, source)}


def by_key(unit: Unit, graph: QueryGraph, cells: int) -> dict[str, Exchange]:
    """Rows of the same keys to one cell; empty if that cannot be.

    It can if all that the unit keeps is kept by keys that are expressions over its logs' columns, one set of
    keys for a log, and each result comes from what it keeps.
    """
    computing = _computing(unit, graph)
    ids = {node.id for node in computing}
    if not all(ids & graph.ancestors(node_id) for node_id, _ in unit.outputs):
        return {}
    by_node = [_keys_of_logs(node, graph) for node in computing]
    found: dict[str, Keys] = {}
    for wanted in sorted(by_node, key=_number_of_keys):
        known = next((log for log in wanted if log in found), None)
        if known is not None and set(found[known]) <= set(wanted[known]):
            # Rows with the same keys have some of them in common: these are enough, and in one order.
            order = [wanted[known].index(key) for key in found[known]]
            wanted = {log: tuple(keys[place] for place in order) for log, keys in wanted.items()}
        if not wanted or any(found.setdefault(log, keys) != keys for log, keys in wanted.items()):
            return {}
    if found.keys() != set(unit.inputs):
        return {}
    return {log: Exchange((cells,), (keys,)) for log, keys in found.items()}


def _keys_of_logs(node: Node, graph: QueryGraph) -> dict[str, Keys]:
    """By log, those of a node's keys that the rows which lead to it have; empty if it cannot be split."""
    found: dict[str, Keys] = {}
    for together in zip(*(partition_keys(node.operator) or ()), strict=True):
        in_logs = _in_logs(graph, zip(node.inputs, together, strict=True))
        found |= {log: (*found.get(log, ()), key) for log, key in in_logs.items()}
    return found


def exchange_at(
    node: Node, port: int, graph: QueryGraph, exchanges: Mapping[str, Exchange]
) -> Exchange | None:
    """How the rows that come to an input of a node are spread, by keys over that input; None in one cell.

    Raises ValueError where the node does not have the keys by which they are.
    """
    source = graph[node.inputs[port]]
    behind = {log_of(graph[node_id], graph) for node_id in graph.ancestors(source.id)}
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
        raise ValueError(f"{node.id} has no key by which its rows are spread")

    found = {
        Exchange(
            exchange.shape,
            tuple(by if isinstance(by, Along) else tuple(own(log, key) for key in by) for by in exchange.by),
        )
        for log, exchange in exchanges.items()
        if log in behind
    }
    if len(found) > 1:
        raise ValueError(f"what comes to {node.id} is made from rows that are spread in several ways")
    return next(iter(found), None)


def _in_logs(graph: QueryGraph, keys: Iterable[tuple[str, Expr]]) -> dict[str, Expr]:
    """Keys of nodes that are equal, by the logs these are made from; empty where a log has none, or two."""
    found: dict[str, Expr] = {}
    for source, key in keys:
        below = keys_in_logs(graph, graph[source], (key,))
        if below is None or any(found.setdefault(log, own) != own for log, (own,) in below.items()):
            return {}
    return found


def _number_of_keys(by_log: Mapping[str, Keys]) -> int:
    return max(map(len, by_log.values()), default=0)


def needed_by_log(readers: Iterable[Mapping[str, Exchange]]) -> dict[str, tuple[Exchange, ...]]:
    """By which exchanges each log is read, of all units."""
    found: dict[str, dict[Exchange, None]] = {}
    for exchanges in readers:
        for log, exchange in exchanges.items():
            found.setdefault(log, {})[exchange] = None
    return {log: tuple(by) for log, by in found.items()}


def _computing(unit: Unit, graph: QueryGraph) -> list[Node]:
    """What keeps state by which results differ, and asks for keys; a drop box lets a share of all pass."""
    found = []
    for node in (graph[node_id] for node_id in unit.stateful_nodes):
        kind = kind_of(node.operator)
        if kind.computes and not kind.split_by_any(node.operator, node, graph):
            found.append(node)
    return found
