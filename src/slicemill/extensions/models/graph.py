"""Dataflow graph of a model: which operators compute its result when the window slides (C12).

Nodes are operators, and edges carry vectors of elements. A slide removes the oldest elements of the window
and appends new ones. Each operator has a letter: S reads new elements, F filters, M appends one vector to
another, T transforms elements, A searches for an element, Ac accumulates elements, P permutes, W stores a
value until the next slide, and Z pairs two vectors (C23). A core statistic is a sum, count or extreme over
the window from which the result is computed. A T with `gather` takes the values of several core statistics as
one element. A T with `scalars` has an additional input for each `let` value that its function uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slicemill.extensions.models.terms import ModelError


class Op(StrEnum):
    S = "S"
    F = "F"
    M = "M"
    T = "T"
    A = "A"
    AC = "Ac"
    P = "P"
    W = "W"
    Z = "Z"


class InstancePhase(StrEnum):
    """Phase in which an edge of a model's graph is active: the first window, later slides, or both."""

    INITIAL = "initial"
    SUCCESSIVE = "successive"
    BOTH = "both"


class Storage(StrEnum):
    WORKING = "working"
    INTERMEDIATE = "intermediate"
    PERMANENT = "permanent"


_INPUTS = {Op.S: 0, Op.F: 1, Op.M: 2, Op.T: 1, Op.A: 1, Op.AC: 1, Op.P: 1, Op.W: 1, Op.Z: 2}


@dataclass(frozen=True)
class ModelNode:
    """Operator node in the dataflow graph of a model.

    `core` is the index of the core statistic that the operator computes, -1 if several share the operator.
    """

    id: str
    op: Op
    params: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    core: int = -1

    @property
    def outputs(self) -> int:
        """Return the number of outputs of an operator: several for filters (F), one for all others."""
        if self.op is Op.F:
            return len(self.params["where"]) if "where" in self.params else 2
        return 1

    @property
    def inputs(self) -> int:
        return _INPUTS[self.op] + len(self.params.get("scalars", ()))


@dataclass(frozen=True, slots=True)
class ModelEdge:
    src: str
    dst: str
    src_port: int = 0
    dst_port: int = 0
    phase: InstancePhase = InstancePhase.BOTH

    def __str__(self) -> str:
        return f"{self.src}.{self.src_port} → {self.dst}.{self.dst_port}"


@dataclass(frozen=True)
class ModelGraph:
    """Dataflow graph of a model. `columns` names the columns of an element, `result` the last node."""

    nodes: tuple[ModelNode, ...]
    edges: tuple[ModelEdge, ...]
    result: str
    columns: tuple[str, ...] = ("x",)

    def __getitem__(self, name: str) -> ModelNode:
        for node in self.nodes:
            if node.id == name:
                return node
        raise ModelError(f"the graph has no node {name}")

    @property
    def registers(self) -> tuple[ModelNode, ...]:
        return tuple(node for node in self.nodes if node.op is Op.W)

    def into(self, name: str, phase: InstancePhase) -> list[ModelEdge]:
        """Return the edges into a node that are active in a phase, ordered by input port.

        The phases are the first window and later slides.
        """
        edges = [
            edge for edge in self.edges if edge.dst == name and edge.phase in (phase, InstancePhase.BOTH)
        ]
        return sorted(edges, key=lambda edge: edge.dst_port)

    def order(self, phase: InstancePhase) -> list[ModelNode]:
        """Return the nodes of the graph in an order in which they can be executed in a phase.

        Nodes that store values (W) do not delay their readers, which read the value of the previous slide.
        """
        waiting, done, ordered = list(self.nodes), set[str](), list[ModelNode]()
        registers = {node.id for node in self.registers}
        while waiting:
            ready = [
                node
                for node in waiting
                if all(edge.src in done or edge.src in registers for edge in self.into(node.id, phase))
            ]
            if not ready:
                names = ", ".join(node.id for node in waiting)
                raise ModelError(f"the graph has a cycle that passes no register W, among {names}")
            ordered += ready
            done |= {node.id for node in ready}
            waiting = [node for node in waiting if node.id not in done]
        return ordered

    def validate(self, *, fixed_size: bool = True) -> None:
        """Raise ModelError if the graph is invalid.

        Without `fixed_size`, transforms (T) that depend on positions of elements are invalid too.
        """
        ids = [node.id for node in self.nodes]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ModelError(f"the graph has two nodes named {', '.join(twice)}")
        if self.result not in ids:
            raise ModelError(f"the result node {self.result} is not a node of the graph")
        for edge in self.edges:
            self._check_edge(edge)
        for node in self.nodes:
            self._check_inputs(node)
            if node.op is Op.T:
                _check_transform(node, fixed_size)
        for phase in (InstancePhase.INITIAL, InstancePhase.SUCCESSIVE):
            self.order(phase)

    def _check_edge(self, edge: ModelEdge) -> None:
        src, dst = self[edge.src], self[edge.dst]
        if edge.src_port not in range(src.outputs):
            raise ModelError(f"{edge}: {src.op} has {src.outputs} output{'s' * (src.outputs != 1)}")
        if edge.dst_port not in range(dst.inputs):
            raise ModelError(f"{edge}: {dst.op} takes {dst.inputs} input{'s' * (dst.inputs != 1)}")

    def _check_inputs(self, node: ModelNode) -> None:
        """Raise ModelError unless every input port of a node has exactly one edge.

        An input of M (append) may have no edge in one of the phases, and is empty in that phase.
        """
        required = set(range(node.inputs))
        connected: set[int] = set()
        for phase in (InstancePhase.INITIAL, InstancePhase.SUCCESSIVE):
            ports = [edge.dst_port for edge in self.into(node.id, phase)]
            if len(ports) != len(set(ports)):
                raise ModelError(f"two edges end at one input of {node.id} ({node.op})")
            if node.op is Op.Z and ports and set(ports) != required:
                raise ModelError(f"{node.id} (Z) needs both inputs at the same time")
            connected |= set(ports)
        if connected != required:
            raise ModelError(f"{node.id} ({node.op}) has {len(connected)} of {len(required)} inputs")

    def to_json(self) -> str:
        record = {
            "columns": self.columns,
            "result": self.result,
            "nodes": [
                {"id": n.id, "op": n.op, "params": dict(n.params), "label": n.label, "core": n.core}
                for n in self.nodes
            ],
            "edges": [
                {"src": e.src, "src_port": e.src_port, "dst": e.dst, "dst_port": e.dst_port, "phase": e.phase}
                for e in self.edges
            ],
            "registers": [{"id": n.id, "storage": n.params["storage"], "init": []} for n in self.registers],
        }
        return json.dumps(record)

    @staticmethod
    def from_json(text: str) -> ModelGraph:
        try:
            record = json.loads(text)
            nodes = tuple(ModelNode(**{**node, "op": Op(node["op"])}) for node in record["nodes"])
            edges = tuple(
                ModelEdge(**{**edge, "phase": InstancePhase(edge["phase"])}) for edge in record["edges"]
            )
            graph = ModelGraph(nodes, edges, record["result"], tuple(record["columns"]))
        except (KeyError, TypeError, ValueError) as problem:
            raise ModelError(f"this is not a graph of a model: {problem}") from None
        graph.validate()
        return graph


def _check_transform(node: ModelNode, fixed_size: bool) -> None:
    """Raise ModelError if a transform depends on positions and the window has no fixed size (C6).

    A transform whose last function applies to all further positions is always valid.
    """
    positional = "fs" in node.params or node.params.get("positional", False)
    if positional and not fixed_size and not node.params.get("tail"):
        raise ModelError(
            f"{node.id} (T) depends on positions, and a window of varying size has no fixed positions: "
            f"use a window of rows, a constant tail, or weights by age"
        )
