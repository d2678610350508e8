"""Specification of `TABLE(f(…))`: each row with the rows of a function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.columns.sequence_bits import fanned_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import ColumnRef, Expr, columns_of, transform
from slicemill.esl.types.relation import RelationQuery
from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, Keys, KeysBelow, OperatorKind
from slicemill.operators.operator import Operator

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class TableCall(Operator):
    """Join each row of a stream with the rows of `query`.

    `query` reads the `arguments`, computed from the row, by their names. `stream_alias` is empty if the
    stream's columns are qualified already.
    """

    stream_alias: str
    alias: str
    function: str
    query: RelationQuery
    arguments: tuple[tuple[str, Expr], ...]


def _words(call: TableCall, *_: object) -> Description:
    values = ", ".join(render(value) for _, value in call.arguments)
    return Description("⋈", f"Table {call.function}({values}) AS {call.alias}", ())


def stream_keys_below(alias: str, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys to the stream's own columns.

    None if a key uses other columns.
    """
    prefix = f"{alias}." if alias else ""
    own = {prefix + name for name in graph[node.inputs[0]].schema.names}
    if not all(columns_of(key) <= own for key in keys):
        return None

    def below(expr: Expr) -> Expr | None:
        return replace(expr, name=expr.name.removeprefix(prefix)) if isinstance(expr, ColumnRef) else None

    return ((node.inputs[0], tuple(transform(key, below) for key in keys)),)


KINDS = (
    OperatorKind(
        spec=TableCall,
        words=_words,
        label=lambda call: f"call {call.alias}",
        for_all=lambda *_: True,
        alias=lambda call, _: call.stream_alias,
        columns_read=lambda call, _, wanted: ColumnsRead([value for _, value in call.arguments], wanted),
        keeps_state=False,
        keys_below=lambda call, node, graph, keys: stream_keys_below(call.stream_alias, node, graph, keys),
        seq_bits=lambda _, bits, *__: fanned_bits(bits),
        step="slicemill.operators.table_call.step:table_call",
    ),
)
