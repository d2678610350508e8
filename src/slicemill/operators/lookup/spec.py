"""Specification of lookups in tables and in views over streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.columns.sequence_bits import fanned_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, transform
from slicemill.esl.types.query import Window
from slicemill.operators.description import Description, Fact
from slicemill.operators.kind import ColumnsRead, Keys, KeysBelow, OperatorKind, Role, longest_us
from slicemill.operators.operator import Operator
from slicemill.operators.streams.spec import Scan

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Lookup(Operator):
    """Join each stream row (input 0) with a finite relation (input 1).

    `stream_alias` is empty if the stream's columns are qualified already. With `left`, a row without a match
    is emitted with NULLs.
    """

    stream_alias: str
    alias: str
    condition: Expr | None
    left: bool


@dataclass(frozen=True, slots=True)
class Materialize(Operator):
    """View over a stream: the content of its window (M40).

    Rows of other streams look up the content as of their own time.
    """

    view: str
    window: Window


def _words(lookup: Lookup, node: Node, graph: QueryGraph) -> Description:
    relation = graph[node.inputs[1]].operator
    assert isinstance(relation, Scan | Materialize), "no other relation is finite"
    name = relation.relation if isinstance(relation, Scan) else relation.view
    title = f"Look up {name}" if lookup.alias == name else f"Look up {name} AS {lookup.alias}"
    condition = "every row" if lookup.condition is None else render(lookup.condition)
    facts: list[Fact] = [("on", condition)]
    if lookup.left:
        facts.append(("no match", "keep the tuple, with NULLs"))
    return Description("⋈", title, tuple(facts))


def in_table(_: Lookup, node: Node, graph: QueryGraph) -> bool:
    """Return True for a table, False for a view over a stream."""
    return isinstance(graph[node.inputs[1]].operator, Scan)


def _fed_by(_: Lookup, node: Node, graph: QueryGraph) -> tuple[str, ...]:
    """Return the input streams of a lookup.

    A table is no input. A view's stream precedes the probing stream, so that a row matches view rows of its
    own time.
    """
    stream, relation = node.inputs
    return (stream,) if in_table(_, node, graph) else (graph[relation].inputs[0], stream)


def _keys_below(lookup: Lookup, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys to the stream's own columns.

    None if a key uses other columns.
    """
    prefix = f"{lookup.stream_alias}." if lookup.stream_alias else ""
    own = {prefix + name for name in graph[node.inputs[0]].schema.names}
    if not in_table(lookup, node, graph) or not all(columns_of(key) <= own for key in keys):
        return None
    return ((node.inputs[0], tuple(transform(key, lambda e: _without(e, prefix)) for key in keys)),)


def _without(expr: Expr, prefix: str) -> Expr | None:
    return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None


KINDS = (
    OperatorKind(
        spec=Lookup,
        words=_words,
        label=lambda lookup: f"look up {lookup.alias}",
        for_all=in_table,
        fed_by=_fed_by,
        alias=lambda lookup, port: lookup.alias if port == 1 else lookup.stream_alias,
        looked_up=lambda _, port: port == 1,
        columns_read=lambda lookup, _, wanted: ColumnsRead(
            [] if lookup.condition is None else [lookup.condition], wanted
        ),
        keeps_state=False,
        keys_below=_keys_below,
        seq_bits=lambda _, bits, *__: fanned_bits(bits),
        step="slicemill.operators.lookup.step:lookup",
    ),
    OperatorKind(
        spec=Materialize,
        role=Role.TABLE,
        words=lambda view, *_: Description("", f"View {view.view}", (("window", str(view.window)),)),
        relation=lambda view: view.view,
        label=lambda _: "view",
        history_us=lambda view, *_: longest_us([view.window]),
    ),
)
