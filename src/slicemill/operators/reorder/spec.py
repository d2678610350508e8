"""`CREATE STREAM s AS SELECT … ORDER BY column SLACK d`: rows get the time that a column says."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class Reorder(Operator):
    """Rows with the time of `column`, in its order. Up to `slack_us` before its own time a row may lie.

    Whether it lies further back, and is left out, depends on the row alone.
    """

    column: str
    slack_us: int


def _words(operator: Reorder) -> Description:
    return Description("↕", "Order", (("by", operator.column), ("slack", format_us(operator.slack_us))))


KINDS = (
    OperatorKind(
        spec=Reorder,
        role=Role.STATEFUL,
        words=lambda operator, *_: _words(operator),
        label=lambda _: "order",
        slack_us=lambda operator: operator.slack_us,
        waits_for_time=lambda *_: True,
        columns_read=lambda operator, _, read: ColumnsRead((), {*read, operator.column}),
        history_us=lambda operator, *_: operator.slack_us,
        step="slicemill.operators.reorder.step:reorder",
    ),
)
