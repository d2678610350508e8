"""Specification of GROUP BY over all history, as a changelog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.expression import ColumnRef, columns_of, transform
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.esl.types.schema import OP, Kind
from slicemill.operators.description import Description, grouped
from slicemill.operators.kind import ColumnsRead, Keys, KeysBelow, OperatorKind, Role, UnitOf
from slicemill.operators.operator import Operator
from slicemill.operators.over.accumulators import accumulator_of, sources_of_calls

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class GroupChanges(Operator):
    """Aggregates of groups, emitted after each change of a group.

    With `retracts` the input is a changelog.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    retracts: bool = False

    @property
    def by_rows(self) -> bool:
        """True if no kernels exist for the argument types."""
        kinds = {argument.type.kind for call in self.calls for argument in call.arguments}
        return not kinds.isdisjoint((Kind.ANY, Kind.NULL, Kind.PERIOD))

    @property
    def one_cell(self) -> bool:
        """True if one cell has all groups, and rows are numbered anew."""
        return self.retracts or self.by_rows


def _words(group: GroupChanges) -> Description:
    facts = (*grouped(group.calls, group.group_by), ("over", "all history"), ("gives", "changes"))
    return Description("γ", "Aggregate", facts)


def _columns_read(group: GroupChanges) -> ColumnsRead:
    arguments = [argument for call in group.calls for argument in call.arguments]
    return ColumnsRead([*(item.expr for item in group.group_by), *arguments], (OP,) * group.retracts)


def _keys(group: GroupChanges) -> tuple[Keys, ...] | None:
    """Return the partition keys; None if there is a single cell.

    An update may concern two groups, whose halves must be read together.
    """
    return None if group.one_cell else (tuple(item.expr for item in group.group_by),)


def _keys_below(group: GroupChanges, node: Node, _: QueryGraph, keys: Keys) -> KeysBelow | None:
    """Map keys over the groups to keys over the input."""
    groups = {item.name: item.expr for item in group.group_by}
    read = {name for key in keys for name in columns_of(key)}
    if group.one_cell or not read <= groups.keys():
        return None
    below = tuple(transform(k, lambda e: groups[e.name] if isinstance(e, ColumnRef) else None) for k in keys)
    return ((node.inputs[0], below),)


def _takes(kept: GroupChanges, group: GroupChanges) -> list[int] | None:
    """Return by call the former call with the same accumulator.

    Only accumulators can emit the whole table again.
    """
    if kept.one_cell or group.one_cell or kept.group_by != group.group_by:
        return None
    if not all(map(accumulator_of, group.calls)):
        return None
    return sources_of_calls(kept.calls, group.calls)


KINDS = (
    OperatorKind(
        spec=GroupChanges,
        role=Role.STATEFUL,
        words=lambda group, *_: _words(group),
        label=lambda _: "aggregate",
        columns_read=lambda group, *_: _columns_read(group),
        unit=UnitOf.KEYS,
        keys=_keys,
        keys_below=_keys_below,
        history_us=lambda *_: None,
        # Both halves of an update have the number of the row that causes it.
        seq_bits=lambda group, bits, *_: SEQ_BITS if group.one_cell else bits,
        takes=_takes,
        taken_over="slicemill.operators.group_changes.step:taken_over",
        step="slicemill.operators.group_changes.step:group_changes",
    ),
)
