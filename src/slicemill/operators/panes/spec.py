"""Operators: aggregates over sliding time windows that share panes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slicemill.columns.sequence_bits import fanned_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr, conjunction
from slicemill.esl.types.schema import Column
from slicemill.operators.description import Description, many, partition, window_calls
from slicemill.operators.kind import ColumnsRead, MemberKind, OperatorKind, Role, UnitOf, longest_us
from slicemill.operators.operator import SharedOperator
from slicemill.operators.over.spec import WindowAggregate
from slicemill.operators.panes.grids import KEPT, Call, edge_grids, kept_for
from slicemill.operators.windowed_group.spec import RelationAggregate, words_of_windows
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class WindowMember:
    """Aggregate query that shares panes with others (M35).

    `name` is stable for the lifetime of the query. `columns` are the output columns that consumers read.
    If `partial`, results are combined from partial aggregates of panes; otherwise panes keep the argument
    values of each tuple.
    """

    name: str
    conditions: tuple[Expr, ...]
    operator: RelationAggregate | WindowAggregate
    columns: tuple[Column, ...]
    partial: bool

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """Return (length, slide) of each window, in microseconds."""
        if isinstance(self.operator, RelationAggregate):
            found = [(self.operator.windows[0][1].extent, self.operator.slide)]
        else:
            found = [(call.window.extent, call.window.slide) for call in self.operator.calls]
        return tuple((length, slide) for length, slide in found if length is not None and slide is not None)

    @property
    def calls_read(self) -> Sequence[Call]:
        """Return the calls whose results are read."""
        read = {column.name for column in self.columns}
        return [call for call in self.operator.calls if call.columns[0].name in read]


@dataclass(frozen=True, slots=True)
class SharedWindows(SharedOperator):
    """Aggregates over sliding windows with common input and keys, in one operator."""

    keys: tuple[Expr, ...]
    members: tuple[WindowMember, ...]


def _words(shared: SharedWindows) -> Description:
    """Describe for EXPLAIN where panes are cut and what they store."""
    edges = edge_grids(window for member in shared.members for window in member.windows)
    panes = " and ".join(
        f"every {format_us(step)}{f' from {format_us(offset)}' if offset else ''}" for step, offset in edges
    )
    kept: dict[str, list[str]] = {}
    for member in shared.members:
        for call in member.operator.calls:
            partials = KEPT[call.name] if member.partial else ("values",)
            found = kept.setdefault(", ".join(render(a) for a in call.arguments) or "*", [])
            found += [partial for partial in partials if partial not in found]
    facts = [("in", f"panes cut {panes}")]
    facts += [("per pane", f"{', '.join(partials)} of {what}") for what, partials in kept.items()]
    facts += partition(shared.keys)
    return Description("γ", f"Windows of {many(len(shared.members), 'aggregate')}", tuple(facts))


def _member_words(member: WindowMember) -> Description:
    if isinstance(member.operator, RelationAggregate):
        facts = words_of_windows(member.operator).facts
    else:
        facts = window_calls(member.operator.calls)
    where = conjunction(member.conditions)
    selected = (("where", render(where)),) if where is not None else ()
    return Description("γ", "From panes", (*facts, *selected))


def _member_history_us(member: WindowMember) -> int | None:
    if isinstance(member.operator, RelationAggregate):
        return longest_us(window for _, window in member.operator.windows)
    return longest_us(call.window for call in member.operator.calls)


def _holds(kept: WindowMember, member: WindowMember) -> bool:
    """Return True if the panes kept for `kept` contain all that `member` reads.

    sum(v), count(*)   [RANGE 60 SLIDE 10]     keeps per pane: rows, count and sum of v
    avg(v)             [RANGE 60 SLIDE 10]     reads per pane: count and sum of v
    """
    if not (kept.partial and member.partial) or kept.conditions != member.conditions:
        return False
    if isinstance(kept.operator, RelationAggregate):
        if not isinstance(member.operator, RelationAggregate):
            return False
        if replace(kept.operator, calls=()) != replace(member.operator, calls=()):
            return False
        return kept_for(member.calls_read) <= kept_for(kept.calls_read)
    if not isinstance(member.operator, WindowAggregate) or _passed(kept) != _passed(member):
        return False
    same_keys = kept.operator.calls[0].partition_by == member.operator.calls[0].partition_by
    in_time = set(member.windows) <= set(kept.windows)
    return same_keys and in_time and kept_for(member.operator.calls) <= kept_for(kept.operator.calls)


def _passed(member: WindowMember) -> list[Column]:
    """Return the input columns in the member's output.

    Waiting tuples are stored with these columns.
    """
    returned = {column.name for call in member.operator.calls for column in call.columns}
    return [column for column in member.columns if column.name not in returned]


def _columns_read(shared: SharedWindows) -> ColumnsRead:
    exprs, names = [*shared.keys], set()
    for member in shared.members:
        exprs += [*member.conditions, *(part for call in member.operator.calls for part in call.arguments)]
        names |= {column.name for column in member.columns}
    return ColumnsRead(exprs, names)


KINDS = (
    OperatorKind(
        spec=SharedWindows,
        role=Role.STATEFUL,
        words=lambda shared, *_: _words(shared),
        waits_for_time=lambda *_: True,
        selections=lambda shared, _: tuple(conjunction(member.conditions) for member in shared.members),
        columns_read=lambda shared, *_: _columns_read(shared),
        unit=UnitOf.KEYS,
        keys=lambda shared: (shared.keys,),
        member=MemberKind(
            words=_member_words,
            history_us=_member_history_us,
            # A user-defined aggregate may return several rows for a window.
            seq_bits=lambda member, bits, _: bits if member.partial else fanned_bits(bits),
            holds=_holds,
        ),
        stored={"plan.window_member": WindowMember},
        step="slicemill.operators.panes.step:shared_windows",
    ),
)
