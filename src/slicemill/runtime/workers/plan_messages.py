"""Serialization of task plans for workers, node by node.

Serialized nodes are cached. So when a query is added to a plan of a thousand queries, only its nodes are
serialized. Nodes are immutable, and the planner reuses the nodes of unchanged statements (`plan.planner`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import cast

from pyspark import cloudpickle

from slicemill.operators.graph import Node, QueryGraph
from slicemill.runtime.pipeline import TaskPlan

_REMEMBERED = 1 << 14  # nodes of some thousand queries


def pack_plan(plan: TaskPlan) -> bytes:
    """Serialize a plan; equal plans have equal bytes."""
    nodes = [_pack_node(node) for node in plan.graph]
    message: bytes = cloudpickle.dumps((replace(plan, graph=QueryGraph({}, plan.graph.streams)), nodes))
    return message


def unpack_plan(message: bytes) -> TaskPlan:
    plan, packed_nodes = cast(tuple[TaskPlan, list[bytes]], cloudpickle.loads(message))
    nodes = map(_unpack_node, packed_nodes)
    return replace(plan, graph=QueryGraph({node.id: node for node in nodes}, plan.graph.streams))


@lru_cache(_REMEMBERED)
def _pack_node(node: Node) -> bytes:
    found: bytes = cloudpickle.dumps(node)  # it may contain user-defined functions
    return found


@lru_cache(_REMEMBERED)
def _unpack_node(packed_node: bytes) -> Node:
    return cast(Node, cloudpickle.loads(packed_node))
