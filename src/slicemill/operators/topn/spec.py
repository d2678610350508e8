"""Specification of top-n: `ROW_NUMBER() OVER (…) <= n`, ORDER BY … LIMIT n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slicemill.columns.sequence_bits import SEQ_BITS, fanned_bits, ranked_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import columns_of
from slicemill.esl.types.query import RankedBy
from slicemill.esl.types.schema import OP, Schema
from slicemill.operators.description import Description, Fact, partition
from slicemill.operators.kind import ColumnsRead, Keys, KeysBelow, OperatorKind, Role, UnitOf
from slicemill.operators.operator import Operator

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class TopN(Operator):
    """Rows whose rank is at most `limit`.

    `shown` is the rank column, if any. With `retracts` the input is a changelog. The output is a changelog
    too, unless the operator `appends`: ordered by time, the first rows never change.
    """

    by: RankedBy
    limit: int
    shown: str | None = None
    retracts: bool = False

    @property
    def by_place(self) -> bool:
        """True if a row that takes another row's place updates it."""
        return self.by.keyed_by_place(self.limit, self.shown, Schema((), self.retracts))

    @property
    def appends(self) -> bool:
        return self.by.oldest_first and not self.retracts

    @property
    def one_each(self) -> bool:
        """True for one row per partition, which only a better row replaces."""
        return self.limit == 1 and self.by.function == "row_number" and not self.retracts

    @property
    def several(self) -> bool:
        """True for several rows per partition with distinct ranks."""
        return self.by.function == "row_number" and not (self.appends or self.one_each or self.retracts)


def order_of(by: RankedBy) -> Fact:
    words = [f"{render(expr)}{' DESC' if falls else ''}" for expr, falls in by.order_by]
    return "order by", ", ".join(words)


def _words(top: TopN) -> Description:
    facts = [
        *partition(top.by.partition_by),
        order_of(top.by),
        ("first", f"{top.by.function} <= {top.limit}"),
    ]
    return Description("τ", "Top", (*facts, ("gives", "rows" if top.appends else "changes")))


def _columns_read(top: TopN, wanted: object) -> ColumnsRead:
    exprs = [*top.by.partition_by, *(expr for expr, _ in top.by.order_by)]
    assert isinstance(wanted, (set, frozenset, list, tuple, dict))
    return ColumnsRead(exprs, {*wanted, OP} if top.retracts else set(wanted) - {OP, top.shown})


def _keys_below(top: TopN, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Pass keys to the input, unless they use the rank."""
    below = set(graph[node.inputs[0]].schema.own.names)
    read = {name for key in keys for name in columns_of(key)}
    return ((node.inputs[0], keys),) if read <= below and not top.retracts else None


def _seq_bits(top: TopN, bits: int) -> int:
    if top.appends or top.one_each:
        return bits
    if top.several:
        return fanned_bits(bits)
    return SEQ_BITS if top.retracts or not top.by.partition_by else fanned_bits(ranked_bits(bits))


KINDS = (
    OperatorKind(
        spec=TopN,
        role=Role.STATEFUL,
        words=lambda top, *_: _words(top),
        label=lambda _: "top",
        by_position=lambda top: not (top.appends or top.one_each or top.several),
        columns_read=lambda top, _, wanted: _columns_read(top, wanted),
        unit=UnitOf.KEYS,
        keys=lambda top: None if top.retracts else (top.by.partition_by,),
        keys_below=_keys_below,
        history_us=lambda *_: None,
        seq_bits=lambda top, bits, *_: _seq_bits(top, bits),
        step="slicemill.operators.topn.step:top",
    ),
)
