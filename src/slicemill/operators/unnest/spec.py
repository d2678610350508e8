"""Specification of `UNNEST(list)`: each row with every element of its list."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import fanned_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.operators.description import Description, Fact
from slicemill.operators.kind import ColumnsRead, OperatorKind
from slicemill.operators.operator import Operator
from slicemill.operators.table_call.spec import stream_keys_below


@dataclass(frozen=True, slots=True)
class Unnest(Operator):
    """Join each row of a stream with the elements of `list`.

    The elements are in list order. With `left`, a row whose list is empty or NULL is emitted with a NULL.
    `stream_alias` is empty if the stream's columns are qualified already.
    """

    stream_alias: str
    alias: str
    list: Expr
    left: bool


def _words(unnest: Unnest, *_: object) -> Description:
    facts: tuple[Fact, ...] = (("no element", "keep the tuple, with NULL"),) if unnest.left else ()
    return Description("⋈", f"Elements of {render(unnest.list)} AS {unnest.alias}", facts)


KINDS = (
    OperatorKind(
        spec=Unnest,
        words=_words,
        label=lambda unnest: f"unnest {unnest.alias}",
        for_all=lambda *_: True,
        alias=lambda unnest, _: unnest.stream_alias,
        columns_read=lambda unnest, _, wanted: ColumnsRead([unnest.list], wanted),
        keeps_state=False,
        keys_below=lambda unnest, node, graph, keys: stream_keys_below(
            unnest.stream_alias, node, graph, keys
        ),
        seq_bits=lambda _, bits, *__: fanned_bits(bits),
        step="slicemill.operators.unnest.step:unnest",
    ),
)
