"""Names and descriptions of nodes, shared by text, JSON and SVG."""

from __future__ import annotations

from slicemill.operators.description import Description
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.kind import Role
from slicemill.operators.operator import Operator
from slicemill.operators.registry import kind_of


def role_of(node: Node) -> Role:
    return kind_of(node.operator).role


def is_lookup_arc(graph: QueryGraph, target: str, port: int) -> bool:
    """Return True if an input is looked up, not a stream."""
    operator = graph[target].operator
    return kind_of(operator).looked_up(operator, port)


def words_of(node: Node, graph: QueryGraph) -> Description:
    """Return the description of a node."""
    return kind_of(node.operator).words(node.operator, node, graph)


def operator_name(operator: Operator) -> str:
    """Return the class name of an operator in snake case.

    >>> from slicemill.operators.union.spec import Merge
    >>> operator_name(Merge())
    'merge'
    """
    name = type(operator).__name__
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def port_name(node: Node, port: int) -> str:
    """Return the alias of an operator's input, or an empty string."""
    return kind_of(node.operator).alias(node.operator, port)
