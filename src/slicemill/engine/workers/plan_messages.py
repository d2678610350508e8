"""The plan of a unit as it travels to workers: node by node, so that a query that comes to a thousand others
costs what its own nodes do.

Nodes are immutable, and those of a statement stay the same objects while others come and go (`plan.planner`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import cast

from pyspark import cloudpickle

from slicemill.engine.program import UnitPlan
from slicemill.operators.graph import Node, QueryGraph

_REMEMBERED = 1 << 14  # nodes: those of some thousand queries


def packed(plan: UnitPlan) -> bytes:
    """A plan as bytes; equal ones where nothing has changed."""
    nodes = [_packed_node(node) for node in plan.graph]
    message: bytes = cloudpickle.dumps((replace(plan, graph=QueryGraph({}, plan.graph.streams)), nodes))
    return message


def unpacked(message: bytes) -> UnitPlan:
    plan, packed_nodes = cast(tuple[UnitPlan, list[bytes]], cloudpickle.loads(message))
    nodes = map(_unpacked_node, packed_nodes)
    return replace(plan, graph=QueryGraph({node.id: node for node in nodes}, plan.graph.streams))


@lru_cache(_REMEMBERED)
def _packed_node(node: Node) -> bytes:
    found: bytes = cloudpickle.dumps(node)  # it may have functions of users
    return found


@lru_cache(_REMEMBERED)
def _unpacked_node(packed_node: bytes) -> Node:
    return cast(Node, cloudpickle.loads(packed_node))
