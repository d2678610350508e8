"""Optimizer: ordered lists of rewrites of query graphs.

All engines apply `RULES`. Only the runtime applies `sharing_rules`, which merge operators of several queries.
The reference engine runs each query alone, so tests can compare shared with unshared results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from slicemill.catalog.catalog import Catalog
from slicemill.errors import SlicemillError
from slicemill.extension import extensions, load
from slicemill.operators.graph import QueryGraph
from slicemill.plan.rules.arrivals_to_over import arrivals_to_over
from slicemill.plan.rules.drop_boxes import drop_boxes
from slicemill.plan.rules.multi_joins import multi_joins
from slicemill.plan.rules.name_by_content import name_by_content
from slicemill.plan.rules.narrow_chains import narrow_chains
from slicemill.plan.rules.push_selections import push_selections
from slicemill.plan.rules.share_joins import share_joins
from slicemill.plan.rules.share_over import share_over
from slicemill.plan.rules.share_sessions import share_sessions
from slicemill.plan.rules.share_windows import share_windows
from slicemill.plan.rules.split_joins import split_joins

RULES: tuple[Callable[[QueryGraph], QueryGraph], ...] = (push_selections,)
_SHARING: tuple[Callable[[QueryGraph, Catalog], QueryGraph], ...] = (
    narrow_chains,
    drop_boxes,
    name_by_content,
    arrivals_to_over,
    multi_joins,
    split_joins,
    share_joins,
    share_windows,
    share_sessions,
    share_over,
)


@cache
def sharing_rules() -> tuple[Callable[[QueryGraph, Catalog], QueryGraph], ...]:
    """Return the rules that merge operators, including the rules of extensions."""
    rules = list(_SHARING)
    names = [rule.__name__ for rule in rules]
    for name, extension in extensions().items():
        for rewrite in (each for operator in extension.operators for each in operator.rewrites):
            if rewrite.before is not None and rewrite.before not in names:
                raise SlicemillError(
                    f"extension {name}: there is no rule {rewrite.before} to place a rewrite before; "
                    f"use one of {', '.join(names)}"
                )
            index = len(rules) if rewrite.before is None else names.index(rewrite.before)
            rules.insert(index, load(rewrite.rule))
            names.insert(index, rewrite.rule.rpartition(":")[2])
    return tuple(rules)


def optimize(graph: QueryGraph) -> QueryGraph:
    for rule in RULES:
        graph = rule(graph)
    return graph


def share(graph: QueryGraph, catalog: Catalog) -> QueryGraph:
    """Merge the operators that several queries can share."""
    for rule in sharing_rules():
        graph = rule(graph, catalog)
    return graph
