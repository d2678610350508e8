"""Specifications of aggregates over session windows, for one query or shared by several queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import Expr, conjunction
from slicemill.catalog.queries import AggregateCall, SelectItem, SessionWindow
from slicemill.columns.sequence_bits import fan_out_bits
from slicemill.functions.render import render
from slicemill.operators.protocol import (
    ColumnsRead,
    Description,
    Keys,
    MemberKind,
    Operator,
    OperatorKind,
    Role,
    SharedOperator,
    TaskOf,
    grouping_facts,
    partition,
    pluralize,
)
from slicemill.time import format_us
from slicemill.types import Column

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph


@dataclass(frozen=True, slots=True)
class SessionAggregate(Operator):
    """Aggregates over the sessions of each group.

    A row is emitted when a session has ended. The timestamp of the row is the end of the session.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    session: SessionWindow

    @property
    def keys(self) -> Keys:
        return tuple(item.expr for item in self.group_by)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """Return all expressions that are evaluated for each tuple, other than the group keys."""
        arguments = [argument for call in self.calls for argument in call.arguments]
        return tuple(dict.fromkeys([*arguments, *self.session.exprs]))


@dataclass(frozen=True, slots=True)
class SessionMember:
    """Session aggregate of one query that shares stored rows with other queries.

    `conditions` select the tuples of the query. `name` is stable for the lifetime of the query.
    """

    name: str
    conditions: tuple[Expr, ...]
    operator: SessionAggregate
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SharedSessions(SharedOperator):
    """Session aggregates of several queries, which share stored rows.

    All queries have the same input and keys.
    """

    keys: Keys
    members: tuple[SessionMember, ...]


def describe_session(window: SessionWindow) -> str:
    parts = [] if window.gap_us is None else [f"gap {format_us(window.gap_us)}"]
    parts += [] if window.until is None else [f"until {render(window.until)}"]
    parts += [] if window.close is None else [f"closed when {render(window.close)}"]
    return ", ".join(parts)


def _describe_sessions(operator: SessionAggregate) -> Description:
    facts = [
        *grouping_facts(operator.calls, operator.group_by),
        ("session", describe_session(operator.session)),
    ]
    return Description("γ", "Sessions", tuple(facts))


class SessionAggregateKind(OperatorKind[SessionAggregate]):
    spec = SessionAggregate
    role = Role.STATEFUL
    task = TaskOf.KEYS
    step = "slicemill.operators.window.strategies:window_step"

    def words(self, operator: SessionAggregate, node: Node, graph: QueryGraph) -> Description:
        return _describe_sessions(operator)

    def label(self, operator: SessionAggregate) -> str:
        return "sessions"

    def waits_for_time(self, operator: SessionAggregate, kind: TimestampKind) -> bool:
        return True

    def columns_read(self, operator: SessionAggregate, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([*operator.keys, *operator.exprs], ())

    def keys(self, operator: SessionAggregate) -> tuple[Keys, ...] | None:
        return (operator.keys,)

    def history_us(self, operator: SessionAggregate, node: Node, graph: QueryGraph) -> int | None:
        return None

    def seq_bits(
        self, operator: SessionAggregate, bits: int, catalog: Catalog, node: Node, graph: QueryGraph
    ) -> int:
        # A user-defined aggregate may return several rows for a session.
        return fan_out_bits(bits)

    def stored(self) -> Mapping[str, type]:
        return {"plan.session_aggregate": SessionAggregate, "plan.session": SessionWindow}


class SessionMemberKind(MemberKind[SessionMember]):
    def words(self, member: SessionMember) -> Description:
        where = conjunction(member.conditions)
        selected = (("where", render(where)),) if where is not None else ()
        return Description("γ", "Sessions", (*_describe_sessions(member.operator).facts, *selected))

    def history_us(self, member: SessionMember) -> int | None:
        return None

    def seq_bits(self, member: SessionMember, bits: int, catalog: Catalog) -> int:
        return fan_out_bits(bits)

    def holds(self, kept: SessionMember, member: SessionMember) -> bool:
        """Return True if the rows stored for a running query (`kept`) suffice for a new query (`member`)."""
        same = replace(kept.operator, calls=()) == replace(member.operator, calls=())
        return (
            same
            and kept.conditions == member.conditions
            and set(member.operator.exprs) <= set(kept.operator.exprs)
        )


class SharedSessionsKind(OperatorKind[SharedSessions]):
    spec = SharedSessions
    role = Role.STATEFUL
    task = TaskOf.KEYS
    member = SessionMemberKind()
    step = "slicemill.operators.window.strategies:window_step"

    def words(self, shared: SharedSessions, node: Node, graph: QueryGraph) -> Description:
        kept = dict.fromkeys(render(expr) for member in shared.members for expr in member.operator.exprs)
        facts = [("keep", ", ".join(kept) or "times"), *partition(shared.keys)]
        return Description("γ", f"Sessions of {pluralize(len(shared.members), 'aggregate')}", tuple(facts))

    def waits_for_time(self, shared: SharedSessions, kind: TimestampKind) -> bool:
        return True

    def selections(self, shared: SharedSessions, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        return tuple(conjunction(member.conditions) for member in shared.members)

    def columns_read(self, shared: SharedSessions, port: int, wanted: Collection[str]) -> ColumnsRead:
        exprs = [*shared.keys]
        for member in shared.members:
            exprs += [*member.conditions, *member.operator.exprs]
        return ColumnsRead(exprs, ())

    def keys(self, shared: SharedSessions) -> tuple[Keys, ...] | None:
        return (shared.keys,)

    def stored(self) -> Mapping[str, type]:
        return {"plan.session_member": SessionMember}


KINDS = (
    SessionAggregateKind(),
    SharedSessionsKind(),
)
