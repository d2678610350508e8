"""Specification of GROUP BY over all history."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import fanned_bits, ranked_bits
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.operators.description import Description, grouped
from slicemill.operators.kind import ColumnsRead, OperatorKind, Role, UnitOf
from slicemill.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class GroupAggregate(Operator):
    """Grouped aggregates that emit a row whenever one of them returns (M30)."""

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]


def _words(group: GroupAggregate) -> Description:
    return Description("γ", "Aggregate", (*grouped(group.calls, group.group_by), ("over", "all history")))


def _columns_read(group: GroupAggregate) -> ColumnsRead:
    arguments = [argument for call in group.calls for argument in call.arguments]
    return ColumnsRead([*(item.expr for item in group.group_by), *arguments], ())


KINDS = (
    OperatorKind(
        spec=GroupAggregate,
        role=Role.STATEFUL,
        words=lambda group, *_: _words(group),
        label=lambda _: "aggregate",
        columns_read=lambda group, *_: _columns_read(group),
        unit=UnitOf.KEYS,
        keys=lambda group: (tuple(item.expr for item in group.group_by),),
        history_us=lambda *_: None,
        seq_bits=lambda _, bits, *__: fanned_bits(ranked_bits(bits)),
        last_words=True,
        step="slicemill.operators.group.step:group_calls",
    ),
)
