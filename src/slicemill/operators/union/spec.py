"""UNION of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.catalog import TimestampKind
from slicemill.operators.description import Description
from slicemill.operators.kind import OperatorKind
from slicemill.operators.operator import Operator

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class Merge(Operator):
    """UNION: sort-merge of its inputs by timestamp (M14, M21)."""


def _words(_: Merge, node: Node, __: QueryGraph) -> Description:
    order = "as tuples arrive" if node.kind is TimestampKind.LATENT else "by timestamp"
    return Description("∪", "Union", (("merged", order),))


KINDS = (
    OperatorKind(
        spec=Merge,
        words=_words,
        label=lambda _: "union",
        # Latent tuples have no time to wait for: they are passed on at once.
        waits_for_time=lambda _, kind: kind is not TimestampKind.LATENT,
        seq_bits=lambda *_: SEQ_BITS,
        step="slicemill.operators.union.step:merge",
    ),
)
