"""First rows among those of one timestamp: ORDER BY and LIMIT for each result of a window, and ranks."""

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
    """Rows of one timestamp, in order within each partition; none whose rank is above the limit.

    Ranks are known when the watermark has passed the timestamp: rows are told once, and nothing is kept of
    them. `shown` is the column with the rank, if it is asked for.
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
