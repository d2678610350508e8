"""ORDER BY and LIMIT for each result of a window: all groups that it reports at one time."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.query import RankedBy
from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.operators.topn.spec import order_of


@dataclass(frozen=True, slots=True)
class WindowTop(Operator):
    """Rows of one timestamp in order, no more of them than the limit."""

    by: RankedBy
    limit: int | None


def _words(top: WindowTop) -> Description:
    facts = [order_of(top.by)] + ([("first", str(top.limit))] if top.limit is not None else [])
    return Description("τ", "Top of each window", tuple(facts))


KINDS = (
    OperatorKind(
        spec=WindowTop,
        role=Role.STATEFUL,
        words=lambda top, *_: _words(top),
        label=lambda _: "top",
        waits_for_time=lambda *_: True,
        columns_read=lambda top, _, wanted: ColumnsRead([expr for expr, _ in top.by.order_by], wanted),
        seq_bits=lambda *_: SEQ_BITS,
        step="slicemill.operators.window_top.step:window_top",
    ),
)
