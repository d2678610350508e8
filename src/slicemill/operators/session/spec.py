"""Operators: aggregates over session windows, for one query or shared by several."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class SessionAggregate(Operator):
    """Base aggregates over the sessions of each group.

    A row is emitted when a session has ended, with the end as timestamp.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    session: SessionWindow

    @property
    def keys(self) -> Keys:
        return tuple(item.expr for item in self.group_by)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """Return the expressions that are evaluated for a tuple, except the keys."""
        arguments = [argument for call in self.calls for argument in call.arguments]
        return tuple(dict.fromkeys([*arguments, *self.session.exprs]))


@dataclass(frozen=True, slots=True)
class SessionMember:
    """Session aggregate of one of the queries that share stored rows.

    `conditions` select its tuples. `name` is stable for the lifetime of the query.
    """

    name: str
    conditions: tuple[Expr, ...]
    operator: SessionAggregate
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SharedSessions(SharedOperator):
    """Session aggregates of several queries, over shared rows.

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


def _describe_shared_sessions(shared: SharedSessions) -> Description:
    kept = dict.fromkeys(render(expr) for member in shared.members for expr in member.operator.exprs)
    facts = [("keep", ", ".join(kept) or "times"), *partition(shared.keys)]
    return Description("γ", f"Sessions of {pluralize(len(shared.members), 'aggregate')}", tuple(facts))


def _describe_session_member(member: SessionMember) -> Description:
    where = conjunction(member.conditions)
    selected = (("where", render(where)),) if where is not None else ()
    return Description("γ", "Sessions", (*_describe_sessions(member.operator).facts, *selected))


def _holds(kept: SessionMember, member: SessionMember) -> bool:
    """Return True if the rows stored for `kept` are sufficient for `member`."""
    same = replace(kept.operator, calls=()) == replace(member.operator, calls=())
    return (
        same
        and kept.conditions == member.conditions
        and set(member.operator.exprs) <= set(kept.operator.exprs)
    )


def _columns_read(shared: SharedSessions) -> ColumnsRead:
    exprs = [*shared.keys]
    for member in shared.members:
        exprs += [*member.conditions, *member.operator.exprs]
    return ColumnsRead(exprs, ())


KINDS = (
    OperatorKind(
        spec=SessionAggregate,
        role=Role.STATEFUL,
        words=lambda operator, *_: _describe_sessions(operator),
        label=lambda _: "sessions",
        waits_for_time=lambda *_: True,
        columns_read=lambda operator, *_: ColumnsRead([*operator.keys, *operator.exprs], ()),
        task=TaskOf.KEYS,
        keys=lambda operator: (operator.keys,),
        history_us=lambda *_: None,
        # A user-defined aggregate may return several rows for a session.
        seq_bits=lambda _, bits, *__: fan_out_bits(bits),
        stored={"plan.session_aggregate": SessionAggregate, "plan.session": SessionWindow},
        step="slicemill.operators.window.strategies:window_step",
    ),
    OperatorKind(
        spec=SharedSessions,
        role=Role.STATEFUL,
        words=lambda shared, *_: _describe_shared_sessions(shared),
        waits_for_time=lambda *_: True,
        selections=lambda shared, _: tuple(conjunction(member.conditions) for member in shared.members),
        columns_read=lambda shared, *_: _columns_read(shared),
        task=TaskOf.KEYS,
        keys=lambda shared: (shared.keys,),
        member=MemberKind(
            words=_describe_session_member,
            history_us=lambda _: None,
            seq_bits=lambda _, bits, __: fan_out_bits(bits),
            holds=_holds,
        ),
        stored={"plan.session_member": SessionMember},
        step="slicemill.operators.window.strategies:window_step",
    ),
)
