"""Bind PAUSE, RESUME and RESTART, which name a running query or stream."""

from __future__ import annotations

from sqlglot import exp

from slicemill.errors import did_you_mean
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.problems import Unknowable
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.catalog import DerivedStream, QueryDefinition, Relation, Stream
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.lives import LifeAction, LifeChange


def bind_life(node: nodes.ChangeLife, context: Context) -> LifeChange:
    action, kind = LifeAction(child(node, "action")), child(node, "kind")
    found = running(kind, node.this, context)
    if isinstance(found, Stream) and action is LifeAction.RESTART:
        raise Mistake(
            f"{found.name} comes from outside; its source is tried again by itself",
            span_of(node.this),
            "RESTART is for queries, and for streams that a query makes",
        )
    return LifeChange(action, kind, found.name)


def running(kind: str, identifier: exp.Identifier, context: Context) -> QueryDefinition | Relation:
    """Return the continuous query or stream of a name, or raise."""
    name, catalog = identifier.name, context.catalog
    known: dict[str, QueryDefinition | Relation] = (
        {**catalog.queries}
        if kind == "QUERY"
        else {
            key: one
            for key, one in catalog.relations.items()
            if isinstance(one, (Stream, DerivedStream, Classifier))
        }
    )
    found = known.get(name.lower())
    if found is None:
        if name.lower() in context.broken:
            raise Unknowable
        hint = did_you_mean(name, [one.name for one in known.values()])
        other = catalog.relations.get(name.lower()) if kind == "QUERY" else catalog.queries.get(name.lower())
        if isinstance(other, (Stream, DerivedStream, QueryDefinition)):
            hint = f"it is a {'stream' if kind == 'QUERY' else 'query'}"
        raise Mistake(f"there is no {kind.lower()} {name}", span_of(identifier), hint or "")
    if isinstance(found, QueryDefinition) and not found.continuous:
        raise Mistake(
            f"{found.name} reads tables and views only: it is answered when it is asked, and never runs",
            span_of(identifier),
            "only a query over streams can be paused, resumed, restarted or altered",
        )
    return found
