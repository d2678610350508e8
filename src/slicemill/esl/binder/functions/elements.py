"""Bind `UNNEST(list)` in FROM: one row per element of a list."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill.esl.binder.context import Context
from slicemill.esl.binder.environments import SelectEnvironment
from slicemill.esl.binder.scalar import bind
from slicemill.esl.binder.scope import Scope
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.query import QueryInput
from slicemill.esl.types.relation import RelationInput
from slicemill.esl.types.schema import Column, Kind, Schema

_UNNAMED = "unnest"


def bind_elements(entry: nodes.StreamInput, before: Sequence[QueryInput], context: Context) -> QueryInput:
    """Return the elements as a finite relation of one column."""
    call = entry.this
    if child(entry, "frame") is not None:
        raise Mistake(
            "the elements of a list have no window", span_of(child(entry, "frame")), "leave the window out"
        )
    env = SelectEnvironment(
        context, Scope(tuple((one.alias, one.schema.own) for one in before), qualified=True), frozenset()
    )
    env.place = "UNNEST(…)"
    elements = bind(call.this, env)
    if elements.type.kind is not Kind.LIST or elements.type.element is None:
        raise Mistake(
            f"UNNEST takes a list, and this is {elements.type}",
            span_of(call.this),
            "as in UNNEST(split(text, ',')), or of what collect_list(x) gives",
        )
    alias_node = child(entry, "alias")
    alias = _UNNAMED if alias_node is None else str(alias_node.name)
    column_node = child(call, "column")
    name = alias if column_node is None else str(column_node.name)
    schema = Schema((Column(name, elements.type.element),))
    rows = RelationInput(_UNNAMED, alias, schema, arguments=(("list", elements),))
    return QueryInput(alias, schema, finite=True, call=rows)


def joined_elements(join: nodes.JoinInput | None) -> tuple[exp.Expression | None, bool]:
    """Return the condition of a JOIN UNNEST, and if it is LEFT.

    A LEFT JOIN keeps tuples with empty lists.
    """
    side = None if join is None else child(join, "side")
    if join is None or side in (None, "CROSS"):
        return None if join is None else child(join, "on"), False
    on = child(join, "on")
    if side != "LEFT" or not isinstance(on, exp.Boolean) or not on.this:
        raise Mistake(
            "the elements of a list are joined with their own tuple",
            span_of(join),
            "write CROSS JOIN UNNEST(list) AS t(x), or LEFT JOIN UNNEST(list) AS t(x) ON TRUE",
        )
    return on, True
