"""Specification of `CREATE STREAM s AS SELECT … ORDER BY column SLACK d`."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.operators.description import Description
from slicemill.operators.kind import ColumnsRead, OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class Reorder(Operator):
    """Set the time of rows to `column`, and reorder the rows by it.

    The new time may be up to `slack_us` before the row's own time. Rows with an earlier time are dropped,
    which depends on the row alone.
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
