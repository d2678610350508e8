"""Registration of all state classes for checkpoints. Import before reading a checkpoint.

A state also has the definitions of the queries that use it. After a change of the plan, a query with an
unchanged definition takes over its state, and a changed query starts empty. Definitions are compared by
value.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from slicemill import types
from slicemill.catalog import expressions as expression
from slicemill.catalog import queries as query
from slicemill.catalog import queries as relation
from slicemill.catalog.queries import LoadBudget
from slicemill.codec.registry import stored_as
from slicemill.extension import extensions, load
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.registry import kinds

_CLASSES: dict[str, type] = {
    "kind": types.Kind,
    "column": types.Column,
    "expr.column": expression.ColumnRef,
    "expr.literal": expression.Literal,
    "expr.call": expression.Call,
    "expr.cast": expression.Cast,
    "expr.case": expression.Case,
    "expr.argument": expression.Argument,
    "expr.oldest": expression.Oldest,
    "expr.query": expression.ScalarQuery,
    "expr.exists": expression.ExistsQuery,
    "relation.query": relation.RelationQuery,
    "item": relation.SelectItem,
    "aggregate.call": relation.AggregateCall,
    "frame": query.FrameUnit,
    "join_kind": query.JoinKind,
    "window.call": query.WindowCall,
    "plan.load_budget": LoadBudget,
}


def _inner(plain: dict[str, Any]) -> dict[str, Any]:
    """Upgrade version 1, which had only inner joins."""
    return {**plain, "kind": query.JoinKind.INNER}


for _kind in kinds():
    _CLASSES.update(_kind.stored())
    if _kind.step is not None:
        load(_kind.step)  # registers the classes of its state
for _name, _class in _CLASSES.items():
    if issubclass(_class, JoinMember):
        stored_as(_name, version=2, upgrade={1: _inner})(_class)
    else:
        stored_as(_name, version=1)(_class)

stored_as(
    "window",
    version=3,
    upgrade={
        1: lambda plain: {**plain, "grows": False},
        2: lambda plain: {**plain, "expires": None},
    },
)(query.Window)
stored_as("expiry", version=1)(query.ExpiryColumn)
stored_as("schema", version=2, upgrade={1: lambda plain: {**plain, "changelog": False, "key": None}})(
    types.Schema
)
stored_as(
    "relation.input",
    version=3,
    upgrade={
        1: lambda plain: {**plain, "arguments": None},
        2: lambda plain: {**plain, "more": ()},
    },
)(relation.RelationInput)
stored_as(
    "type",
    version=3,
    upgrade={
        1: lambda plain: {**plain, "unit": None},
        2: lambda plain: {**plain, "element": None},
    },
)(types.Type)

for _extension in extensions().values():
    for _operators in _extension.operators:
        for _module in _operators.states:
            import_module(_module)  # registers its state classes
