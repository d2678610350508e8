"""Bind REPLAY of a stream's bad rows; WHERE selects among them."""

from __future__ import annotations

from sqlglot import exp

from slicemill.errors import did_you_mean
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.problems import Unknowable
from slicemill.esl.binder.queries import bind_query
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import at, child, span_of
from slicemill.esl.types.catalog import ERRORS, Stream
from slicemill.esl.types.query import SelectQuery
from slicemill.esl.types.replay import Replay


def bind_replay(node: nodes.ReplayErrors, context: Context) -> Replay:
    name, catalog = node.this.name, context.catalog
    owner = catalog.owner_of(name) if name.lower().endswith(ERRORS) else None
    if owner is None:
        if name.lower().removesuffix(ERRORS) in context.broken:
            raise Unknowable
        known = [one.name + ERRORS for one in catalog.relations.values() if isinstance(one, Stream)]
        declared = catalog.relations.get(name.lower())
        hint = f"write REPLAY {declared.name}{ERRORS}" if isinstance(declared, Stream) else ""
        raise Mistake(
            f"{name} has no rows that could not be read",
            span_of(node.this),
            hint or did_you_mean(name, known) or "a declared stream s keeps its bad rows in s_errors",
        )
    where = child(node, "where")
    if where is None:
        return Replay(owner.name + ERRORS, owner.name)
    # Bind the condition as the WHERE of a query over the bad rows.
    span = span_of(node.this)
    column = at(exp.Column(this=at(exp.Identifier(this="raw", quoted=False), span)), span)
    entry = at(nodes.StreamInput(this=node.this.copy()), span)
    select = at(exp.Select(expressions=[column], entries=[entry], where=exp.Where(this=where.copy())), span)
    query = bind_query(select, context)
    assert isinstance(query, SelectQuery), "it reads a stream"
    return Replay(owner.name + ERRORS, owner.name, query.where)
