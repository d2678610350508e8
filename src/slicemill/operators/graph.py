"""Query graph: sources, operators and sinks, connected by arcs (M1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from slicemill.catalog.catalog import TimestampKind
from slicemill.operators.protocol import Operator
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import Part, QueryResults, Source
from slicemill.types import Schema


@dataclass(frozen=True, slots=True)
class Node:
    """Operator in the query graph, with its inputs; `schema` and `kind` describe its output.

    `label` is the displayed name: the id without its digest. `owner` is the only query, stream or view that
    uses the node, or empty for a node that several queries may share.
    """

    id: str
    operator: Operator
    inputs: tuple[str, ...]
    schema: Schema
    kind: TimestampKind
    label: str = ""
    owner: str = ""

    def __hash__(self) -> int:
        # Nodes are keys of caches that every statement reads, so hashing must be fast. Ids are nearly unique.
        return hash(self.id)

    @property
    def name(self) -> str:
        return self.label or self.id

    @property
    def waits_for_time(self) -> bool:
        """Return True if the operator holds rows until watermarks of its inputs pass them.

        The specification calls such operators idle-waiting-prone (M21).
        """
        return kind_of(self.operator).waits_for_time(self.operator, self.kind)


@dataclass(frozen=True, slots=True)
class Arc:
    """Arc between two nodes of the query graph; `port` is the input number of `target`."""

    source: str
    target: str
    port: int
    schema: Schema
    kind: TimestampKind


@dataclass(frozen=True)
class QueryGraph:
    """Query graph, with its nodes in topological order.

    `streams` maps the name of a derived stream to the node that produces it.
    """

    nodes: dict[str, Node]
    streams: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __getitem__(self, node_id: str) -> Node:
        return self.nodes[node_id]

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are omitted, so that equal graphs have equal pickles.
        return {"nodes": self.nodes, "streams": self.streams}

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def arcs(self) -> tuple[Arc, ...]:
        return tuple(
            Arc(source, node.id, port, self[source].schema, self[source].kind)
            for node in self
            for port, source in enumerate(node.inputs)
        )

    @property
    def sources(self) -> tuple[Node, ...]:
        return tuple(node for node in self if isinstance(node.operator, Source))

    @property
    def sinks(self) -> tuple[Node, ...]:
        return tuple(node for node in self if isinstance(node.operator, QueryResults))

    def stream_of(self, node_id: str) -> str | None:
        """Return the name of the first derived stream that a node produces, or None."""
        names = self._streams_named.get(node_id)
        return names[0] if names else None

    def has_parts(self, node_id: str) -> bool:
        """Return True if several queries share the node, each with its part of the result."""
        return any(isinstance(reader.operator, Part) for reader in self.consumers(node_id))

    def consumers(self, node_id: str) -> tuple[Node, ...]:
        return self._consumers.get(node_id, ())

    @cached_property
    def _consumers(self) -> dict[str, tuple[Node, ...]]:
        found: dict[str, dict[str, Node]] = {}
        for node in self:
            for source in node.inputs:
                found.setdefault(source, {})[node.id] = node
        return {source: tuple(nodes.values()) for source, nodes in found.items()}

    def ancestors(self, node_id: str) -> frozenset[str]:
        """Return a node and all nodes from which it receives rows, directly or indirectly."""
        found: set[str] = set()
        waiting = [node_id]
        while waiting:
            current = waiting.pop()
            if current not in found:
                found.add(current)
                waiting.extend(self[current].inputs)
        return frozenset(found)

    def only(self, node_ids: Iterable[str]) -> QueryGraph:
        """Return the subgraph of these nodes, which must include their inputs."""
        kept = sorted(set(node_ids), key=self._positions.__getitem__)
        streams = {name: node_id for node_id in kept for name in self._streams_named.get(node_id, ())}
        return QueryGraph({node_id: self[node_id] for node_id in kept}, streams)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {node_id: number for number, node_id in enumerate(self.nodes)}

    @cached_property
    def _streams_named(self) -> dict[str, list[str]]:
        """Return the names of the derived streams that each node produces."""
        found: dict[str, list[str]] = {}
        for name, node_id in self.streams.items():
            found.setdefault(node_id, []).append(name)
        return found

    def components(self) -> tuple[frozenset[str], ...]:
        """Return the weakly connected components (X1), ordered by their first node."""
        leader = {node_id: node_id for node_id in self.nodes}

        def find(node_id: str) -> str:
            while leader[node_id] != node_id:
                leader[node_id] = leader[leader[node_id]]
                node_id = leader[node_id]
            return node_id

        for arc in self.arcs:
            leader[find(arc.target)] = find(arc.source)
        members: dict[str, set[str]] = {}
        for node_id in self.nodes:
            members.setdefault(find(node_id), set()).add(node_id)
        return tuple(frozenset(part) for part in members.values())
