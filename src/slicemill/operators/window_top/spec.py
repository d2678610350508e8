"""Operator: ORDER BY, LIMIT and ranks among the rows of one timestamp."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.query import RankedBy
from slicemill.operators.description import Description, partition
from slicemill.operators.kind import ColumnsRead, OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.operators.topn.spec import order_of


@dataclass(frozen=True, slots=True)
class WindowTop(Operator):
    """Top rows per timestamp and partition, in order.

    Rows with a rank above `limit` are dropped. Ranks are final when the watermark has passed the
    timestamp, so each row is emitted once and no state is kept afterwards. `shown` names the output column
    with the rank, if any.
    """

    by: RankedBy
    limit: int | None
    shown: str | None = None


def _words(top: WindowTop) -> Description:
    first = [("first", f"{top.by.function} <= {top.limit}")] if top.limit is not None else []
    return Description("τ", "Top of each window", (*partition(top.by.partition_by), order_of(top.by), *first))


def _columns_read(top: WindowTop, wanted: Collection[str]) -> ColumnsRead:
    exprs = [*top.by.partition_by, *(expr for expr, _ in top.by.order_by)]
    return ColumnsRead(exprs, set(wanted) - {top.shown})


KINDS = (
    OperatorKind(
        spec=WindowTop,
        role=Role.STATEFUL,
        words=lambda top, *_: _words(top),
        label=lambda _: "top",
        waits_for_time=lambda *_: True,
        columns_read=lambda top, _, wanted: _columns_read(top, wanted),
        seq_bits=lambda *_: SEQ_BITS,
        step="slicemill.operators.window_top.step:window_top",
    ),
)
