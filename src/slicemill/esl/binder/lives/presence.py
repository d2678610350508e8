"""Look up the object that a CREATE would replace or duplicate.

These lookups serve OR REPLACE and IF NOT EXISTS.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.binder.context import Context
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.nodes import child
from slicemill.esl.types.catalog import Catalog, DerivedStream, Stream, View


def is_there(node: exp.Expression, context: Context) -> bool:
    """Return True if CREATE would find an object of its kind."""
    name, catalog = node.this.name.lower(), context.catalog
    if isinstance(node, nodes.CreateQuery):
        return name in catalog.queries
    if isinstance(node, nodes.CreateFunction):
        return name in catalog.functions
    if isinstance(node, nodes.CreateModel):
        return name in catalog.models
    if isinstance(node, nodes.CreateAggregate):
        if name in catalog.models:
            return False
        return name in (catalog.window_aggregates if child(node, "window") else catalog.base_aggregates)
    return name in catalog.relations


def without_named(node: exp.Expression, catalog: Catalog) -> Catalog:
    """Return the catalog without the object that CREATE OR REPLACE replaces.

    Only an object of the same kind is replaced.
    """
    without, name = catalog.copy(), node.this.name.lower()
    if isinstance(node, nodes.CreateQuery):
        known = without.queries.get(name)
        if known is not None and known.writes_for is None:
            del without.queries[name]
    elif isinstance(node, nodes.CreateFunction):
        without.functions.pop(name, None)
    elif isinstance(node, nodes.CreateModel):
        if without.models.pop(name, None) is not None:
            without.base_aggregates.pop(name, None)
            without.window_aggregates.pop(name, None)
    elif isinstance(node, nodes.CreateAggregate):
        if name not in without.models:
            (without.window_aggregates if child(node, "window") else without.base_aggregates).pop(name, None)
    else:
        kinds = (View,) if isinstance(node, nodes.CreateView) else (Stream, DerivedStream)
        if isinstance(without.relations.get(name), kinds):
            del without.relations[name]
    return without
