"""The ordered list of rewrites that every query graph goes through."""

from __future__ import annotations

from collections.abc import Callable

from slicemill.plan.graph import QueryGraph
from slicemill.plan.rules.push_selections import push_selections

RULES: tuple[Callable[[QueryGraph], QueryGraph], ...] = (push_selections,)


def optimize(graph: QueryGraph) -> QueryGraph:
    for rule in RULES:
        graph = rule(graph)
    return graph
